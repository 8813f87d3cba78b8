"""Tiny tokenizers of the three kinds the real checkpoints use, and their chat templates.

They are trained on one small corpus when first used, so nothing is downloaded, yet they keep
the habits that trip up code which turns text into ids and back: the dummy leading space of
SentencePiece, byte fallback, an automatic BOS, and special tokens glued to ordinary text.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GemmaTokenizer, LlamaTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

CORPUS = (
    "what is in the picture? the picture shows a cat and a dog on the mat.",
    "USER: how many people are there in the image? ASSISTANT: there are three people.",
    "user assistant model system: describe this image in detail, please.",
    "is there a red car next to the tree? yes, there is a car. no, there is not.",
    "The man in the blue shirt is holding a white umbrella while it is raining.",
    "A small brown dog is running across the green field with a ball in its mouth.",
    "Two children are sitting at a wooden table, eating apples and drinking water.",
    "What color is the bus? The bus is yellow. Where is the clock? It is on the wall.",
    "There are some books, a lamp and an old computer on the desk near the window.",
    "Answer the question using a single word or phrase: 0 1 2 3 4 5 6 7 8 9.",
)

_CONTENT = """
{%- macro content(message) -%}
{%- if message.content is string -%}{{ message.content }}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}{{ IMAGE }}{%- elif part.type == 'video' -%}{{ VIDEO }}
{%- else -%}{{ part.text }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
"""

_LLAVA = """
{%- for message in messages -%}
{{ message.role.upper() + ': ' + content(message) + ' ' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ 'ASSISTANT:' }}{%- endif -%}
"""

_CHATML = """
{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\\n' + content(message) + '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}
"""

_GEMMA = """
{{- bos_token -}}
{%- for message in messages -%}
{%- set role = 'model' if message.role == 'assistant' else message.role -%}
{{ '<start_of_turn>' + role + '\\n' + content(message) + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""


def _template(body: str, image: str, video: str = "") -> str:
    """A chat template that writes `image` for every picture and `video` for every video."""
    content = _CONTENT.replace("IMAGE", json.dumps(image)).replace("VIDEO", json.dumps(video))
    return content + body


@functools.cache
def _train(byte_level: bool, merges: int = 110) -> tuple[list[str], list[tuple[str, str]]]:
    """Vocabulary and merges of a BPE over the corpus, over bytes or over characters."""
    tokenizer = Tokenizer(models.BPE())
    alphabet: list[str] = []
    if byte_level:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    size = merges + (len(alphabet) or len({c for line in CORPUS for c in line}))
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return pieces, [(left, right) for left, right in model["merges"]]


def _bpe(byte_level: bool, first: Iterable[str]) -> dict[str, Any]:
    """`vocab` and `merges` with the tokens `first` at the lowest ids, as real vocabularies do."""
    pieces, merges = _train(byte_level)
    tokens = list(dict.fromkeys([*first, *pieces]))
    return {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def llama() -> PreTrainedTokenizerFast:
    """SentencePiece style: dummy leading space, byte fallback, BOS; pad and `<image>` come last."""
    tokenizer = LlamaTokenizer(
        **_bpe(False, ["<unk>", "<s>", "</s>", *_BYTES]),
        add_bos_token=True,
        pad_token="<pad>",
        model_specific_special_tokens={"image_token": "<image>"},
    )
    tokenizer.chat_template = _template(_LLAVA, "<image>\n")
    return tokenizer


def chatml(
    image: str, *, video: str = "", extra: Iterable[str] = (), **named: str
) -> PreTrainedTokenizerFast:
    """Byte-level BPE with ChatML turns.

    `image` is what the template writes for a picture, `video` for a video; `named` are special
    tokens that a processor reads as attributes of the tokenizer, `extra` those that it only looks
    up by their text.
    """
    tokenizer = Qwen2Tokenizer(
        **_bpe(True, []),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=["<|im_start|>", *extra],
        model_specific_special_tokens=named,
    )
    tokenizer.chat_template = _template(_CHATML, image, video)
    return tokenizer


def gemma(image: str | None, **named: str) -> PreTrainedTokenizerFast:
    """Gemma style: no dummy space, BOS from the tokenizer and once more from the template.

    With `image=None` there is no chat template, as in PaliGemma.
    """
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *_BYTES]
    turns = [] if image is None else ["<start_of_turn>", "<end_of_turn>"]
    tokenizer = GemmaTokenizer(
        **_bpe(False, first),
        add_bos_token=True,
        extra_special_tokens=turns,
        model_specific_special_tokens=named,
    )
    if image is not None:
        tokenizer.chat_template = _template(_GEMMA, image)
    return tokenizer
