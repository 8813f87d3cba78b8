"""The untrained models, their tokenizer and processors, of ordinary transformers classes."""

from __future__ import annotations

from typing import Any

import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from lookback.scenes.world import IMAGE_SIZE
from tools.training.recipe import PATCH, VISION_TOKENS, Recipe
from tools.training.texts import training_rng, training_scene, training_texts

PAD, BOS, EOS, IMAGE, USER, ASSISTANT = "<pad>", "<s>", "</s>", "<image>", "USER:", "ASSISTANT:"
# The end token must not have id 2: transformers' CLIP takes that for an old config and then reads
# a text's embedding off the token with the largest id instead of the end token.
SPECIAL = [PAD, BOS, IMAGE, EOS, USER, ASSISTANT]
MEAN, STD = 0.5, 0.25  # of pixels between 0 and 1
MAX_LENGTH = 512
CLIP_LENGTH = 77
CORPUS = 4000  # scenes whose texts the tokenizer is made from

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}"
    "{{ raise_exception('this model was trained without system turns') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ 'USER:' }}{% else %}{{ 'ASSISTANT: ' }}{% endif %}"
    "{% for part in message['content'] if part['type'] == 'image' %}{{ '<image>' }}{% endfor %}"
    "{% if message['role'] == 'user' %}{{ '\\n' }}{% endif %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}"
    "{% if message['role'] != 'user' %}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)


def make_tokenizer(recipe: Recipe) -> Any:
    """A byte-level BPE of the training texts: small, so that words split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (
        f" {text}"
        for index in range(CORPUS)
        for pair in training_texts(training_scene(index), training_rng(index))
        for text in pair
    )
    tokenizer.train_from_iterator(texts, trainer)
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[IMAGE, USER, ASSISTANT],
        padding_side="left",
        model_max_length=MAX_LENGTH,
    )


def make_processor(tokenizer: Any) -> Any:
    """LLaVA's processor over it; any picture is resized to the size of a scene."""
    images = hf.CLIPImageProcessorPil(
        size={"height": IMAGE_SIZE, "width": IMAGE_SIZE},
        do_center_crop=False,
        image_mean=[MEAN] * 3,
        image_std=[STD] * 3,
        do_convert_rgb=True,
    )
    return hf.LlavaProcessor(
        images,
        tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=IMAGE,
        chat_template=CHAT_TEMPLATE,
    )


def special_ids(tokenizer: Any) -> dict[str, int]:
    """The ids that text configs name."""
    return {f"{k}_token_id": getattr(tokenizer, f"{k}_token_id") for k in ("pad", "bos", "eos")}


def vision_config(recipe: Recipe) -> hf.CLIPVisionConfig:
    """The vision tower, of the LVLM and of the dual encoder alike."""
    return hf.CLIPVisionConfig(
        hidden_size=recipe.vision_width,
        intermediate_size=4 * recipe.vision_width,
        num_hidden_layers=recipe.vision_layers,
        num_attention_heads=recipe.vision_heads,
        image_size=IMAGE_SIZE,
        patch_size=PATCH,
        projection_dim=recipe.vision_width,
    )


def make_lvlm(recipe: Recipe, tokenizer: Any) -> Any:
    """A LLaVA with random weights."""
    special = special_ids(tokenizer)
    text = hf.LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        initializer_range=0.03,
        **special,
    )
    config = hf.LlavaConfig(
        vision_config=vision_config(recipe),
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=VISION_TOKENS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    model = hf.LlavaForConditionalGeneration(config)
    model.generation_config.update(**special)
    return model


def make_clip(recipe: Recipe, tokenizer: Any) -> Any:
    """A dual encoder with random weights."""
    text = hf.CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.vision_width,
        intermediate_size=4 * recipe.vision_width,
        num_hidden_layers=recipe.clip_layers,
        num_attention_heads=recipe.vision_heads,
        max_position_embeddings=CLIP_LENGTH,
        projection_dim=recipe.vision_width,
        **special_ids(tokenizer),
    )
    config = hf.CLIPConfig(
        text_config=text.to_dict(),
        vision_config=vision_config(recipe).to_dict(),
        projection_dim=recipe.vision_width,
    )
    return hf.CLIPModel(config)
