"""Which tokens are the source: found independently, and A_t on them against eager maps."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from engines.reference import QUESTION, eager_signals, noise
from zoo import EXTRA_NAMES, NAMES, build

import lookback
from lookback.conversations import Conversation, SourceError
from lookback.engines.common.sources import source_mask, text_spans
from lookback.families import image_token_id
from lookback.signals import SIGNALS

CHATTING = [name for name in [*NAMES, *EXTRA_NAMES] if not name.startswith("paligemma")]
RESPONSE = "a red circle"


def engine(name):
    zoo = build(name)
    return lookback.load(zoo.model, zoo.processor)


def text(words, **marks):
    return {"type": "text", "text": words, **marks}


def picture(image, **marks):
    return {"type": "image", "image": image, **marks}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def masked(lb, messages, source=None):
    """The prompt's inputs, its ids as a list, and the source mask."""
    inputs, mask = lb.inputs(Conversation.from_messages(messages), source)
    return inputs, inputs["input_ids"][0].tolist(), mask


def embedded(lb, inputs):
    """What the decoder is given: (P, D), text and vision merged."""
    with torch.no_grad():
        return lb.model(**inputs, output_hidden_states=True).hidden_states[0][0]


@pytest.mark.parametrize("name", CHATTING)
def test_each_image_owns_the_tokens_that_change_with_it(name):
    """Another picture in one place changes the embeddings of that picture's tokens, and no others.

    Pictures of other sizes have other numbers of tokens, where the model allows that. (An image
    token may also stand for the end of a row, whose embedding is the same for all pictures.)
    """
    lb = engine(name)
    first, second, third = noise(0, (48, 40)), noise(1, (32, 64)), noise(2, (48, 40))
    messages = [user(picture(first), text("and"), picture(second), picture(third), text(QUESTION))]
    inputs, ids, _ = masked(lb, messages)
    before = embedded(lb, inputs)
    masks = [masked(lb, messages, f"image:{number}")[2] for number in range(3)]
    vision = torch.tensor(ids) == image_token_id(lb.model.config)
    assert torch.equal(sum(mask.int() for mask in masks), vision.int())  # each has one owner
    for number in range(3):
        changed = [picture(first), picture(second), picture(third)]
        size = changed[number]["image"].size[::-1]
        changed[number] = picture(noise(9, size))
        other = [user(changed[0], text("and"), *changed[1:], text(QUESTION))]
        after = embedded(lb, masked(lb, other)[0])
        differs = (after - before).abs().amax(-1) > 1e-6
        assert (differs & vision).sum() > 0.6 * masks[number].sum()
        assert not (differs & vision & ~masks[number]).any()


@pytest.mark.parametrize("name", CHATTING)
def test_a_marked_text_owns_the_tokens_that_change_with_it(name):
    """Two prompts that differ in the marked text alone differ in the masked tokens alone."""
    lb = engine(name)

    def ask(words):
        return [
            user(picture(noise()), text("Read this:\n"), text(words, source=True), text("\nWhy?"))
        ]

    words = "the cat sat on the mat"
    _, ids, mask = masked(lb, ask(words))
    _, others, other_mask = masked(lb, ask("a red circle"))
    start, end = int(mask.nonzero()[0]), int(mask.nonzero()[-1]) + 1
    assert mask[start:end].all()
    other_start, other_end = int(other_mask.nonzero()[0]), int(other_mask.nonzero()[-1]) + 1
    assert ids[:start] == others[:other_start]
    assert ids[end:] == others[other_end:]
    assert lb.prompter.decode_all(ids[start:end]).strip() == words


@pytest.mark.parametrize(
    "name", ["llava", "qwen2_5_vl", "gemma3", "idefics3", "mistral3", "llama4"]
)
@pytest.mark.parametrize("source", ["image:0", "image:1", "marked", ["image:1", "marked"]])
def test_signals_equal_eager_maps_over_the_mask(name, source):
    lb = engine(name)
    messages = [
        user(picture(noise(1)), text("one")),
        {"role": "assistant", "content": "yes"},
        user(picture(noise(2)), text("Read: "), text("the cat sat", source=True), text(QUESTION)),
    ]
    inputs, _, mask = masked(lb, messages, source)
    (found,) = lb.score(messages=messages, responses=[RESPONSE], source=source)
    expected = eager_signals(lb.model, inputs, found.token_ids.tolist(), mask)
    ours = np.stack([getattr(found, signal) for signal in SIGNALS])
    np.testing.assert_allclose(ours, expected, atol=1e-5, rtol=1e-4)
    assert found.visual_lookback.max() < 0.999
    drawn = lb.sample(messages=messages, n=2, source=source, max_new_tokens=4, seed=1).scorable()
    again = lb.score(messages=messages, responses=list(drawn), source=source)
    for a, b in zip(drawn, again, strict=True):
        np.testing.assert_allclose(a.visual_lookback, b.visual_lookback, atol=1e-5)


def test_the_parts_of_the_source_add_up():
    lb = engine("qwen2_5_vl")
    images = [noise(1), noise(2, (64, 32))]
    shares = [
        lb.score(images, QUESTION, [RESPONSE], source=source)[0].visual_lookback
        for source in ("image:0", "image:1", ["image:0", "image:1"], None)
    ]
    np.testing.assert_allclose(shares[0] + shares[1], shares[2], atol=1e-6)
    np.testing.assert_array_equal(shares[2], shares[3])


def test_the_last_turn_and_marked_images():
    lb = engine("qwen2_5_vl")
    first, second = picture(noise(1)), picture(noise(2))
    before = [user(first, text("one")), {"role": "assistant", "content": "yes"}]
    messages = [*before, user(second, text(QUESTION))]
    numbered = masked(lb, messages, "image:1")[2]
    assert torch.equal(masked(lb, messages, "last-turn")[2], numbered)
    marked = [*before, user(second | {"source": True}, text(QUESTION))]
    assert torch.equal(masked(lb, marked)[2], numbered)
    with pytest.raises(SourceError, match="the last turn has neither image nor video"):
        masked(lb, [*messages, {"role": "assistant", "content": "a"}, user(text("b"))], "last-turn")
    with pytest.raises(SourceError, match='no part of the messages has "source": True'):
        masked(lb, messages, "marked")


@pytest.mark.parametrize(
    "source", ["image", "image:x", "image:-1", "photo:0", "", "all", ["image:0", "x"]]
)
def test_an_unknown_source_lists_the_ways(source):
    with pytest.raises(SourceError, match=r'there is "image:0"|has no source'):
        masked(engine("llava"), [user(picture(noise()), text(QUESTION))], source)


def test_a_token_over_the_border_goes_where_most_of_its_characters_are():
    """The template writes text parts one behind another: tokens reach across their border."""
    lb = engine("qwen2_5_vl")
    whole = "the red circle, the cat"
    _, ids, _ = masked(lb, [user(picture(noise()), text(whole))])
    tokens = lb.processor.tokenizer.convert_ids_to_tokens(ids)
    rendered = lb.prompter.text(Conversation.of(noise(), whole))
    begin = rendered.index(whole)
    seen = set()
    for border in range(1, len(whole)):
        parts = (text(whole[:border]), text(whole[border:], source=True))
        _, same, mask = masked(lb, [user(picture(noise()), *parts)])
        assert same == ids  # the words are the same, in one part or in two
        at = len(rendered)
        for token, belongs in zip(reversed(tokens), reversed(mask.tolist()), strict=True):
            if token == "<|vision_end|>":  # before it stands the image
                break
            size = 1 if token == "Ċ" else len(token)
            at -= size
            inside = range(max(at, begin + border), min(at + size, begin + len(whole)))
            assert belongs == (2 * len(inside) > size), (border, token)
            seen.add((0 < len(inside) < size, belongs))
    assert {(True, True), (True, False), (False, True), (False, False)} <= seen


def test_a_text_that_the_template_drops_cannot_be_the_source(monkeypatch):
    lb = engine("qwen2_5_vl")
    template = lb.processor.chat_template
    shout = template.replace("part.text", "part.text | upper")
    assert shout != template
    monkeypatch.setattr(lb.processor, "chat_template", shout)
    messages = [user(picture(noise()), text("read this", source=True), text("why"))]
    with pytest.raises(SourceError, match=r"text part 0 is marked .* does not write it"):
        masked(lb, messages)


def test_trimmed_texts_are_found():
    lb = engine("qwen2_5_vl")
    conversation = Conversation.from_messages([user(picture(noise()), text("  why  "))])
    rendered = lb.prompter.text(conversation).replace("  why  ", "why")
    assert {rendered[a:b] for a, b in text_spans(lb.prompter, conversation, rendered).values()} == {
        "why"
    }


@pytest.mark.parametrize(("template", "behind"), [("<{0}>", "more"), ("<{0}|{0}>", ""), ("<>", "")])
def test_a_text_that_does_not_stand_once_in_the_whole_prompt_is_not_found(template, behind):
    """The template writes it twice or not at all, or the prompt goes on behind what it writes."""
    prompter = SimpleNamespace(text=lambda asked: template.format(asked.question))
    conversation = Conversation.of(noise(), "why")
    assert text_spans(prompter, conversation, prompter.text(conversation) + behind) == {}


@pytest.mark.parametrize("name", CHATTING)
def test_a_text_right_behind_an_image_is_its_own(name):
    lb = engine(name)
    _, ids, mask = masked(lb, [user(picture(noise()), text("the cat sat", source=True))])
    found = lb.processor.tokenizer.decode(torch.tensor(ids)[mask])
    assert found.strip() == "the cat sat"


def test_an_image_without_its_tokens_is_refused():
    lb = engine("llava")
    conversation = Conversation.of(noise(), QUESTION)
    inputs, _ = lb.inputs(conversation)
    token = lb.decoder.image_token
    ids = [20 if one == token else one for one in inputs["input_ids"][0].tolist()]
    with pytest.raises(lookback.UnsupportedModelError, match="no image token"):
        source_mask(lb.prompter, conversation, ids)


def test_without_a_template_only_one_question_can_be_asked():
    lb = engine("paligemma")
    with pytest.raises(ValueError, match="has no chat template: it can be asked one question"):
        lb.score(
            messages=[{"role": "system", "content": "hi"}, user(picture(noise()), text("what"))],
            responses=["a"],
        )
    (plain,) = lb.score(noise(), "what", ["a"])
    (spoken,) = lb.score(messages=[user(picture(noise()), text("what"))], responses=["a"])
    np.testing.assert_array_equal(plain.log_prob, spoken.log_prob)


def test_what_a_template_refuses_is_said_in_its_words(monkeypatch):
    lb = engine("qwen2_5_vl")
    refusing = "{{ raise_exception('no system turns here') }}"
    monkeypatch.setattr(lb.processor, "chat_template", refusing)
    with pytest.raises(ValueError, match="chat template refuses the conversation: no system turns"):
        lb.score(noise(), QUESTION, ["a"])
