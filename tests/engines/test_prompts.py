"""Text to tokens and back, for tokenizers that differ in what they do with blanks and bytes."""

from types import SimpleNamespace

import pytest
import torch
from engines.reference import QUESTION, inputs_of, noise
from zoo import NAMES, build

import lookback
from lookback.conversations import Conversation
from lookback.engines.common.prompts import Prompter, to_model
from lookback.families import FAMILIES, GENERIC

TEXTS = [
    "a red circle",
    "The cat sat on the mat.",
    "Yes",
    "two  blanks, a\nnew line",
    "naïve café, 猫 and 😀!",
    "12",
]


@pytest.fixture(params=NAMES)
def lb(request):
    zoo = build(request.param)
    return lookback.load(zoo.model, zoo.processor)


def prompt_ids(lb):
    return inputs_of(lb, noise(), QUESTION)["input_ids"][0].tolist()


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trips(lb, text):
    prompt = prompt_ids(lb)
    ids = lb.prompter.encode(prompt, text)
    assert lb.prompter.decode(prompt, ids) == text
    assert "".join(lb.prompter.pieces(prompt, ids)) == lb.prompter.lead + text


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("paligemma")])
def test_prompt_and_response_are_what_the_chat_template_would_tokenize_to(name):
    """The whole conversation in one go has the same tokens as prompt and response apart."""
    lb = lookback.load(build(name).model, build(name).processor)
    asked = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": "a red circle"}]}
    template, tokenize = lb.processor.apply_chat_template, lb.prompter._tokenize
    whole = tokenize(template([asked, said], tokenize=False))
    prompt = tokenize(template([asked], add_generation_prompt=True, tokenize=False))
    ids = lb.prompter.encode(prompt, "a red circle")
    assert whole[: len(prompt) + len(ids)] == prompt + ids


def test_sentencepiece_responses_begin_with_a_blank():
    zoo = build("llava")
    lb = lookback.load(zoo.model, zoo.processor)
    prompt = prompt_ids(lb)
    assert lb.prompter.lead == " "
    first = lb.prompter.encode(prompt, "a red circle")[0]
    assert zoo.processor.tokenizer.convert_ids_to_tokens(first).startswith("▁")
    # With or without the blank written out, it is the same response.
    assert lb.prompter.encode(prompt, " a red circle") == lb.prompter.encode(prompt, "a red circle")


def test_the_beginning_of_sequence_stands_once(lb):
    bos = lb.prompter.tokenizer.bos_token_id
    if bos is not None:
        assert prompt_ids(lb).count(bos) == 1


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_response_is_refused(lb, text):
    with pytest.raises(ValueError, match=r"response 1: .* is empty"):
        lb.score(noise(), QUESTION, ["fine", text])


def test_a_response_that_is_too_long_is_refused(lb, monkeypatch):
    monkeypatch.setenv("LOOKBACK_MAX_TEXT_CHARACTERS", "100")
    with pytest.raises(ValueError, match=r"response 1: .*LOOKBACK_MAX_TEXT_CHARACTERS"):
        lb.score(noise(), QUESTION, ["fine", "a" * 101])


def test_special_tokens_in_a_response_are_refused(lb):
    token = lb.prompter.tokenizer.eos_token
    with pytest.raises(ValueError, match="special token"):
        lb.score(noise(), QUESTION, [f"a circle{token}"])


def test_a_placeholder_in_the_question_is_refused(lb):
    with pytest.raises(ValueError, match="images are put into the prompt for you"):
        lb.score(noise(), f"{lb.prompter.placeholder} what?", ["a"])


def test_a_video_placeholder_is_refused_of_a_model_that_takes_no_videos():
    """InternVL's processor would look for frames to put in its place."""
    zoo = build("internvl")
    lb = lookback.load(zoo.model, zoo.processor)
    with pytest.raises(ValueError, match="contains the video placeholder"):
        lb.score(noise(), f"{zoo.processor.video_token} what?", ["a"])


def test_without_a_template_the_way_to_ask_must_be_said(monkeypatch):
    zoo = build("paligemma")
    processor = zoo.processor
    monkeypatch.setitem(FAMILIES, "paligemma", GENERIC)
    with pytest.raises(ValueError, match="no chat template: say how to ask"):
        lookback.load(zoo.model, processor)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"no \{question\}"):
        Prompter(processor, GENERIC, 5, prompt="{image}")
    own = Prompter(processor, GENERIC, 5, prompt="Q: {image} {question} A: {response}")
    assert own.text(Conversation.of("x.png", "{image}?")).endswith(" {image}? A:")
    assert own.lead == " "
    assert Prompter(processor, FAMILIES["paligemma"], 5).lead == ""


def test_a_response_that_ends_in_half_a_character_keeps_it():
    """As one does that was drawn up to the longest length."""
    zoo = build("qwen2_5_vl")
    prompter = lookback.load(zoo.model, zoo.processor).prompter
    ids = prompter.encode([], "a 😀")
    for end in range(1, len(ids) + 1):
        pieces = prompter.pieces([], ids[:end])
        assert len(pieces) == end
        assert "".join(pieces) == prompter.decode([], ids[:end])
    assert pieces[-1].endswith("😀")  # it stands with the last of its tokens


def test_no_token_of_a_response_reaches_into_the_prompt(monkeypatch):
    """The model wrote the prompt's end and the response's beginning apart."""
    zoo = build("llava")
    prompter = lookback.load(zoo.model, zoo.processor).prompter
    joined = {"b c": 1000}

    def tokenize(text):
        found, rest = [], text
        while rest:
            piece = next((one for one in joined if rest.startswith(one)), rest[0])
            found.append(joined[piece] if piece in joined else ord(piece))
            rest = rest[len(piece) :]
        return found

    monkeypatch.setattr(prompter, "_tokenize", tokenize)
    monkeypatch.setattr(prompter, "_tail_text", lambda ids: "ab")
    assert prompter.encode([5], "xy") == [ord(c) for c in " xy"]
    assert prompter.encode([5], "cd") == [ord(c) for c in " cd"]


def test_pixels_get_the_models_dtype_and_numbers_stay():
    given = {"pixel_values": torch.zeros(2), "input_ids": torch.zeros(2, dtype=torch.long), "n": 3}
    found = to_model(given, SimpleNamespace(device="cpu", dtype=torch.bfloat16))
    assert found["pixel_values"].dtype == torch.bfloat16
    assert found["input_ids"].dtype == torch.long
    assert found["n"] == 3


def test_labels_of_a_processor_are_left_out(monkeypatch):
    """A model given them computes a loss, and may keep no cache."""
    zoo = build("llava")
    lb = lookback.load(zoo.model, zoo.processor)
    made = {"input_ids": torch.ones(1, 2), "labels": torch.ones(1, 2)}
    monkeypatch.setattr(lb.prompter, "processor", lambda **arguments: made)
    assert set(lb.prompter.inputs([Conversation.of(None, "a")], ["a"], lb.model)) == {"input_ids"}


def test_what_the_tokenizer_cannot_write_is_refused(monkeypatch):
    zoo = build("llava")
    prompter = lookback.load(zoo.model, zoo.processor).prompter

    class HasNoCat:
        tokenizer = prompter.tokenizer
        unk_token_id = prompter.encode([], "cat")[-1]

        def __call__(self, *args, **kwargs):
            return self.tokenizer(*args, **kwargs)

        def __getattr__(self, name):
            return getattr(self.tokenizer, name)

    monkeypatch.setattr(prompter, "tokenizer", HasNoCat())
    with pytest.raises(ValueError, match="no token for part of the response 'a cat'"):
        prompter.encode([], "a cat")


def test_a_processor_without_tokenizer_is_refused():
    with pytest.raises(TypeError, match="has no tokenizer"):
        Prompter(object(), GENERIC, 5)


@pytest.mark.parametrize("error", [StopIteration(), TypeError("int + list"), KeyError("size")])
def test_a_processor_that_fails_is_named(lb, monkeypatch, error):
    def fail(self, **arguments):
        raise error

    monkeypatch.setattr(type(lb.prompter.processor), "__call__", fail)
    with pytest.raises(ValueError, match=f"processor fails: {type(error).__name__}"):
        lb.sample(noise(), "what?", 2, max_new_tokens=2)
