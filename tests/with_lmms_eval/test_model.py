"""The model's classes, made as lmms-eval makes them, asked without its command line."""

import pytest
from lmms_eval.api.instance import Instance, unwrap_generation_output
from lmms_eval.models import get_model
from local_tasks import scenes

from lookback.runs.sources import item_seed


def make(arguments, simple=False, **more):
    """What `--model lookback --model_args ...` gives."""
    model = get_model("lookback", force_simple=simple).create_from_arg_string(arguments, more)
    model.task_dict["t"] = {"test": list(scenes())}
    return model


def ask(model, documents, generation, kind="generate_until", **metadata):
    def messages(item):
        image = {"type": "image", "url": item.conversation.images[0]}
        return [{"role": "user", "content": [image, {"type": "text", "text": item.question}]}]

    about = {"task": "t", "repeats": 1, **metadata}
    requests = [
        Instance(kind, ("", messages, dict(generation), i, "t", "test"), 0, about | {"doc_id": i})
        for i in documents
    ]
    return getattr(model, kind)(requests)


def by_hand(lb, doc_id, name=None, **settings):
    item = scenes()[doc_id]
    seed = item_seed(42, name or f"t/test/{doc_id}")
    return lb.sample(item.conversation.images[0], item.question, seed=seed, **settings)


@pytest.fixture(scope="module")
def three():
    return make("n=3,max_new_tokens=6")


def test_one_is_drawn_as_the_task_says(lb):
    model = make("n=1")
    greedy = {"max_new_tokens": 6, "temperature": 0, "top_p": 0, "until": ["\n\n"]}
    [found] = ask(model, [0], greedy)
    assert found.text == by_hand(lb, 0, n=1, temperature=0.0, max_new_tokens=6)[0].text
    [found] = ask(model, [1], {"max_new_tokens": 6, "temperature": 0.9, "top_p": 0.8})
    drawn = by_hand(lb, 1, n=1, temperature=0.9, top_p=0.8, max_new_tokens=6)
    assert found.text == drawn[0].text


def test_order_does_not_matter_and_repeats_differ(three, lb):
    forth, back = (ask(three, order, {}) for order in ([0, 1, 2], [2, 1, 0]))
    assert [one.text for one in forth] == [one.text for one in reversed(back)]
    again = ask(three, [1, 1], {})
    names = ("t/test/1", "t/test/1#1")
    expected = [by_hand(lb, 1, name, n=3, max_new_tokens=6).best("lookback") for name in names]
    assert [one.text for one in again] == [one.text for one in expected]
    assert again[0].text == forth[1].text


def test_requests_that_make_processes_even_are_not_asked(three):
    [found] = ask(three, [0], {}, __padding_only__=True)
    assert found.text == ""
    assert found.token_counts is None


def test_the_scorer_and_its_settings_choose(lb):
    model = make("n=4,max_new_tokens=6,scorer=lookback,alpha=0,lam=0")
    found = ask(model, [0, 1, 2], {})
    for doc_id, one in enumerate(found):  # alpha = 0 and lambda = 0: the mean of log p
        drawn = by_hand(lb, doc_id, n=4, max_new_tokens=6).scorable()
        assert one.text == max(drawn, key=lambda c: c.log_prob.mean()).text


def test_pruned_candidates_are_no_answer(lb):
    model = make("n=4,max_new_tokens=8,prune=2:1")
    [found] = ask(model, [0], {})
    drawn = by_hand(lb, 0, n=4, max_new_tokens=8, prune=[(2, 1)])
    assert found.text == drawn.best("lookback").text
    assert found.token_counts.output_tokens == sum(len(one.token_ids) for one in drawn)


def test_what_is_said_greedily_is_known():
    model = make("n=1", simple=True)
    [item] = scenes()[:1]
    image = item.conversation.images[0]
    said = model.engine.sample(image, item.question, n=1, temperature=0.0, max_new_tokens=6)[0].text
    texts = [said, f" {said}", "seven purple elephants"]
    args = [(item.question, text, lambda doc: [image], 0, "t", "test") for text in texts]
    about = {"task": "t", "doc_id": 0, "repeats": 1}
    answers = model.loglikelihood([Instance("loglikelihood", one, 0, about) for one in args])
    found = [unwrap_generation_output(one)[0] for one in answers]
    assert [greedy for _, greedy in found] == [True, True, False]
    assert 0 < found[0][0] == found[1][0] < found[2][0]


def test_what_is_refused(three):
    with pytest.raises(NotImplementedError, match="several rounds"):
        ask(three, [0], {}, kind="generate_until_multi_round")
    with pytest.raises(RuntimeError, match=r"t/test/0: .*num_beams = 4"):
        ask(three, [0], {"num_beams": 4})
    with pytest.raises(ValueError, match="model_args has 'beauty'; there are pretrained, engine"):
        make("beauty=1")
    with pytest.raises(ValueError, match="batch_size = 'auto': Input should be a valid integer"):
        make("n=2", batch_size="auto")
