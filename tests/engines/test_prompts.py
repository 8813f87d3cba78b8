"""Text to tokens and back, for tokenizers that differ in what they do with blanks and bytes."""

import pytest
from engines.reference import QUESTION, inputs_of, noise
from zoo import NAMES, build

import lookback
from lookback.conversations import Conversation
from lookback.engines.transformers.prompts import Prompter
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
    ids = lb._prompter.encode(prompt, text)
    assert lb._prompter.decode(prompt, ids) == text
    assert "".join(lb._prompter.pieces(prompt, ids)) == lb._prompter.lead + text


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("paligemma")])
def test_prompt_and_response_are_what_the_chat_template_would_tokenize_to(name):
    """The whole conversation in one go has the same tokens as prompt and response apart."""
    lb = lookback.load(build(name).model, build(name).processor)
    asked = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
    said = {"role": "assistant", "content": [{"type": "text", "text": "a red circle"}]}
    template, tokenize = lb.processor.apply_chat_template, lb._prompter._tokenize
    whole = tokenize(template([asked, said], tokenize=False))
    prompt = tokenize(template([asked], add_generation_prompt=True, tokenize=False))
    ids = lb._prompter.encode(prompt, "a red circle")
    assert whole[: len(prompt) + len(ids)] == prompt + ids


def test_sentencepiece_responses_begin_with_a_blank():
    zoo = build("llava")
    lb = lookback.load(zoo.model, zoo.processor)
    prompt = prompt_ids(lb)
    assert lb._prompter.lead == " "
    first = lb._prompter.encode(prompt, "a red circle")[0]
    assert zoo.processor.tokenizer.convert_ids_to_tokens(first).startswith("▁")
    # With or without the blank written out, it is the same response.
    assert lb._prompter.encode(prompt, " a red circle") == lb._prompter.encode(
        prompt, "a red circle"
    )


def test_the_beginning_of_sequence_stands_once(lb):
    bos = lb._prompter.tokenizer.bos_token_id
    if bos is not None:
        assert prompt_ids(lb).count(bos) == 1


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_response_is_refused(lb, text):
    with pytest.raises(ValueError, match=r"response 1: .* is empty"):
        lb.score(noise(), QUESTION, ["fine", text])


def test_special_tokens_in_a_response_are_refused(lb):
    token = lb._prompter.tokenizer.eos_token
    with pytest.raises(ValueError, match="special token"):
        lb.score(noise(), QUESTION, [f"a circle{token}"])


def test_a_placeholder_in_the_question_is_refused(lb):
    with pytest.raises(ValueError, match="images are put into the prompt for you"):
        lb.score(noise(), f"{lb._prompter.placeholder} what?", ["a"])


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


def test_a_processor_without_tokenizer_is_refused():
    with pytest.raises(TypeError, match="has no tokenizer"):
        Prompter(object(), GENERIC, 5)


@pytest.mark.parametrize("error", [StopIteration(), TypeError("int + list"), KeyError("size")])
def test_a_processor_that_fails_is_named(lb, monkeypatch, error):
    def fail(self, **arguments):
        raise error

    monkeypatch.setattr(type(lb._prompter.processor), "__call__", fail)
    with pytest.raises(ValueError, match=f"processor fails: {type(error).__name__}"):
        lb.sample(noise(), "what?", 2, max_new_tokens=2)
