"""Chat completions: what comes back is what the engine gives, ranked."""

import numpy as np
import pytest
from server.serving import asked, chat, embedded, plain, scene_uri, serving
from toy_engine import ToyEngine

from lookback.server.settings import Defaults, Settings
from lookback.signals import SIGNALS

DRAW = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_tokens": 24}


def expected(n, **more):
    settings = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_new_tokens": 24} | more
    return embedded().sample(messages=plain(), n=n, **settings)


def test_the_best_of_so_many_is_the_engines_best(client):
    found = chat(client, **asked(**DRAW, lookback={"best_of": 8})).json()
    best = expected(8).best()
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": best.text, "refusal": None}
    assert choice["index"] == 0
    assert choice["lookback"]["score"] == pytest.approx(best.score, abs=1e-6)
    assert choice["lookback"]["index"] == best.index
    assert (choice["lookback"]["rank"], choice["lookback"]["of"]) == (1, 8)
    assert choice["finish_reason"] == {"end": "stop", "length": "length"}[best.finish]
    defaults = embedded().family.defaults
    assert {name: choice["lookback"][name] for name in defaults} == dict(defaults)
    assert found["object"] == "chat.completion"
    assert found["model"] == "embedded"
    assert "tokens" not in choice["lookback"]


def test_n_of_them_come_back_ranked_with_all_signals(client):
    body = asked(**DRAW, n=5, lookback={"best_of": 8, "signals": True, "alpha": 0.5, "lam": 2})
    found = chat(client, **body).json()
    ranked = expected(8).rank(alpha=0.5, lam=2)
    assert [c["lookback"]["rank"] for c in found["choices"]] == [1, 2, 3, 4, 5]
    assert [c["index"] for c in found["choices"]] == [0, 1, 2, 3, 4]
    for choice, one in zip(found["choices"], ranked, strict=False):
        told = choice["lookback"]
        assert told["score"] == pytest.approx(one.score, abs=1e-6)
        assert (told["alpha"], told["lam"]) == (0.5, 2)
        assert told["token_ids"] == one.token_ids.tolist()
        assert told["tokens"] == list(one.tokens)
        for name in SIGNALS:
            np.testing.assert_allclose(told[name], getattr(one, name), atol=1e-6)
    written = sum(len(one.tokens) for one in ranked[:5])
    prompt = len(expected(1).prompt_ids)
    assert found["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
    }
    assert found["lookback"]["tokens_drawn"] == sum(len(one.tokens) for one in ranked)
    assert found["lookback"]["seed"] == 7


def test_another_scorer_ranks(client):
    body = asked(**DRAW, n=3, lookback={"best_of": 6, "scorer": "self_certainty"})
    found = chat(client, **body).json()
    ranked = expected(6).rank("self_certainty")
    assert [c["lookback"]["index"] for c in found["choices"]] == [c.index for c in ranked[:3]]
    assert {c["lookback"]["scorer"] for c in found["choices"]} == {"self_certainty"}
    assert {c["lookback"]["alpha"] for c in found["choices"]} == {None}


def test_pruned_ones_come_last(client):
    body = asked(**DRAW, n=8, lookback={"best_of": 8, "prune": [[4, 3]]})
    found = chat(client, **body).json()
    pruned = [c["lookback"]["finish"] == "pruned" for c in found["choices"]]
    assert pruned == sorted(pruned)
    assert sum(pruned) == found["lookback"]["pruned"] > 0
    for choice in found["choices"]:
        assert (choice["lookback"]["score"] is None) == (choice["lookback"]["finish"] == "pruned")
    best = expected(8, prune=[(4, 3)]).best()
    assert found["choices"][0]["message"]["content"] == best.text


def test_pruning_judges_as_the_ranking_does(client):
    body = asked(**DRAW, n=8, lookback={"best_of": 8, "prune": [[4, 3]], "scorer": "entropy"})
    found = chat(client, **body).json()
    from lookback.steering.pruning import Pruning

    wanted = expected(8, prune=Pruning([(4, 3)], scorer="entropy"))
    ends = {c["lookback"]["index"]: c["lookback"]["finish"] for c in found["choices"]}
    assert ends == {c.index: c.finish for c in wanted}


def test_log_probabilities_are_the_models_own(client):
    body = asked(**DRAW, logprobs=True, top_logprobs=3, lookback={"best_of": 2, "signals": True})
    (choice,) = chat(client, **body).json()["choices"]
    content = choice["logprobs"]["content"]
    assert [t["token"] for t in content] == choice["lookback"]["tokens"]
    assert [t["logprob"] for t in content] == choice["lookback"]["log_prob"]
    for token in content:
        assert bytes(token["bytes"]).decode() == token["token"]
        top = token["top_logprobs"]
        assert len(top) == 3
        assert [t["logprob"] for t in top] == sorted((t["logprob"] for t in top), reverse=True)
        assert top[0]["logprob"] >= token["logprob"] - 1e-6
        same = [t["logprob"] for t in top if t["token"] == token["token"]]
        assert all(value == pytest.approx(token["logprob"], abs=1e-6) for value in same)


def test_without_logprobs_there_are_none(client):
    (choice,) = chat(client, **asked(**DRAW, lookback={"best_of": 1})).json()["choices"]
    assert choice["logprobs"] is None


def test_at_temperature_0_one_is_enough(client):
    found = chat(client, **asked(temperature=0, max_tokens=8)).json()
    assert found["lookback"]["best_of"] == 1
    assert found["choices"][0]["lookback"]["of"] == 1


def test_stop_texts_end_a_response(client):
    body = asked(**DRAW, stop=[" a"], lookback={"best_of": 3})
    (choice,) = chat(client, **body).json()["choices"]
    assert " a" not in choice["message"]["content"]
    wanted = expected(3, stop=[" a"]).best()
    assert choice["message"]["content"] == wanted.text


def test_turns_several_images_and_marks(client):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "content": "Hello!", "refusal": None, "name": "it"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": scene_uri(1), "detail": "low"}},
                {"type": "image_url", "image_url": scene_uri(2)},
                {"type": "text", "text": "What is there?"},
            ],
        },
    ]
    answers = {}
    for source in (None, "image:1"):
        body = {"messages": messages, **DRAW, "lookback": {"best_of": 2, "signals": True}}
        body["lookback"]["source"] = source
        answers[source] = chat(client, **body).json()["choices"][0]["lookback"]
    both, second = (np.mean(answers[s]["visual_lookback"]) for s in (None, "image:1"))
    assert 0 < second < both


def test_a_negative_seed_is_a_seed_of_its_own(client):
    first, again, positive = (
        chat(client, **asked(seed=seed, max_tokens=6, lookback={"best_of": 2})).json()
        for seed in (-3, -3, 3)
    )
    assert first["choices"] == again["choices"]
    assert first["choices"] != positive["choices"]
    assert first["lookback"]["seed"] == 2**64 - 3
    assert positive["lookback"]["seed"] == 3


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": []},
        {"tool_choice": "none"},
        {"logit_bias": None},
        {"presence_penalty": 0.0},
        {"metadata": {"a": "b"}},
        {"store": False},
        {"response_format": {"type": "text"}},
    ],
)
def test_what_asks_for_nothing_is_let_pass(client, neutral):
    answer = chat(client, **asked(max_tokens=3, lookback={"best_of": 1}, **neutral))
    assert answer.status_code == 200


def test_the_models_are_listed(client):
    listed = client.get("/v1/models").json()
    assert [one["id"] for one in listed["data"]] == ["embedded"]
    assert client.get("/v1/models/embedded").json() == listed["data"][0]
    answer = client.get("/v1/models/gpt")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_a_developer_is_a_system(client):
    """Which the embedded model's template refuses, by name."""
    turn = {"role": "developer", "content": "Be brief."}
    answer = chat(client, messages=[turn, *asked()["messages"]])
    assert answer.status_code == 400
    assert "system" in answer.json()["error"]["message"]


WORDS = [{"role": "user", "content": "Hi!"}]


def test_words_alone_are_answered_and_ranked_by_log_p(client):
    body = {"messages": WORDS, **DRAW, "n": 3, "lookback": {"best_of": 6, "signals": True}}
    found = chat(client, **body).json()
    settings = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_new_tokens": 24}
    ranked = embedded().sample(None, "Hi!", 6, source="none", **settings).rank("mean_log_prob")
    assert [c["message"]["content"] for c in found["choices"]] == [c.text for c in ranked[:3]]
    for choice in found["choices"]:
        assert choice["lookback"]["scorer"] == "mean_log_prob"
        assert choice["lookback"]["alpha"] is None
        assert set(choice["lookback"]["visual_lookback"]) == {0.0}
    assert "mean_log_prob" in found["lookback"]["note"]


def test_words_alone_as_a_probe_without_settings(client):
    found = chat(client, messages=WORDS, max_tokens=2, model="lookback").json()
    assert found["lookback"]["best_of"] == 25
    assert found["choices"][0]["lookback"]["scorer"] == "mean_log_prob"


def test_words_alone_with_a_scorer_that_needs_no_image(client):
    body = {"messages": WORDS, "max_tokens": 4, "lookback": {"best_of": 3, "scorer": "majority"}}
    found = chat(client, **body).json()
    assert found["choices"][0]["lookback"]["scorer"] == "majority"
    assert "majority" in found["lookback"]["note"]


def test_an_image_of_an_earlier_turn_is_looked_back_at(client):
    messages = [
        *asked()["messages"],
        {"role": "assistant", "content": "A cup."},
        {"role": "user", "content": "What color is it?"},
    ]
    body = {"messages": messages, **DRAW, "lookback": {"best_of": 2, "signals": True}}
    found = chat(client, **body).json()
    assert "note" not in found["lookback"]
    assert found["choices"][0]["lookback"]["scorer"] == "lookback"
    assert min(found["choices"][0]["lookback"]["visual_lookback"]) > 0


def test_words_marked_as_the_source_are_one(client):
    content = [{"type": "text", "text": "A red cup.", "source": True}]
    body = {"messages": [{"role": "user", "content": content}], **DRAW, "lookback": {"best_of": 2}}
    found = chat(client, **body).json()
    assert "note" not in found["lookback"]
    assert found["choices"][0]["lookback"]["scorer"] == "lookback"


@pytest.mark.parametrize(("usual", "used"), [("entropy", "entropy"), ("vauq", "mean_log_prob")])
def test_words_alone_where_the_server_has_another_scorer(usual, used):
    engine, defaults = ToyEngine(), Defaults(scorer=usual, prune="half")
    with serving(engine, Settings(defaults)) as client:
        found = chat(client, messages=WORDS).json()
    assert found["choices"][0]["lookback"]["scorer"] == used


def test_a_model_has_several_names_and_the_first_is_told():
    names = ("org/model", "gpt-4o")
    with serving(ToyEngine(), Settings(names=names)) as client:
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == list(names)
        for name in names:
            assert client.get(f"/v1/models/{name}").json()["id"] == name
        for name in (*names, "lookback", "default"):
            assert chat(client, **asked(model=name)).json()["model"] == "org/model"
        for answer in (
            chat(client, **asked(model="toy")),
            client.post("/v1/score", json=asked(model="toy", responses=["red"])),
            client.post("/v1/look", json=asked(model="toy", response="red")),
            client.get("/v1/models/toy"),
        ):
            assert answer.status_code == 404
            for name in (*names, "lookback", "default"):
                assert repr(name) in answer.json()["error"]["message"]


def test_a_model_may_be_called_anything_if_the_server_says_so():
    with serving(ToyEngine(), Settings(any_name=True)) as client:
        assert chat(client, **asked(model="gpt-4o")).json()["model"] == "toy"
        assert client.get("/v1/models/gpt-4o").json()["id"] == "toy"
        assert [one["id"] for one in client.get("/v1/models").json()["data"]] == ["toy"]
