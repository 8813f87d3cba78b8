"""Given responses: their scores, and where they looked, as the engine has them."""

import numpy as np
import pytest
from server.serving import asked, embedded, plain, serving
from toy_engine import ToyEngine

from lookback.server.app import make_app
from lookback.server.settings import Settings
from lookback.signals import SIGNALS

RESPONSES = ["A red cup.", "There is a big purple hat at the bottom left.", "A dog."]


def test_scores_are_the_engines(client):
    more = {"lookback": {"signals": True, "alpha": 0.7, "lam": 1.5}}
    found = client.post("/v1/score", json=asked(responses=RESPONSES, **more)).json()
    wanted = embedded().score(messages=plain(), responses=RESPONSES)
    scores = wanted.scores(alpha=0.7, lam=1.5)
    assert [one["text"] for one in found["scores"]] == RESPONSES
    for i, told in enumerate(found["scores"]):
        assert told["score"] == pytest.approx(scores[i], abs=1e-6)
        assert told["rank"] == 1 + int((scores > scores[i]).sum())
        assert (told["index"], told["of"]) == (i, 3)
        for name in SIGNALS:
            np.testing.assert_allclose(told[name], getattr(wanted[i], name), atol=1e-6)


def test_token_ids_are_taken_as_they_are(client):
    first = client.post("/v1/score", json=asked(responses=RESPONSES, lookback={"signals": True}))
    ids = [one["token_ids"] for one in first.json()["scores"]]
    again = client.post("/v1/score", json=asked(responses=ids, lookback={"signals": True}))
    for one, other in zip(first.json()["scores"], again.json()["scores"], strict=True):
        assert one["log_prob"] == pytest.approx(other["log_prob"], abs=1e-6)


def test_without_an_image(client):
    body = {"messages": [{"role": "user", "content": "What is in the picture?"}]}
    body |= {"responses": RESPONSES, "lookback": {"signals": True, "source": "none"}}
    found = client.post("/v1/score", json=body).json()
    wanted = embedded().score(None, "What is in the picture?", RESPONSES, source="none")
    for told, one in zip(found["scores"], wanted, strict=True):
        assert set(told["visual_lookback"]) == {0.0}
        assert told["log_prob"] == pytest.approx(one.log_prob.tolist(), abs=1e-6)


@pytest.mark.parametrize("responses", [[], [""], [[]], ["x"] * 65, ["x" * 20_000], [[999_999]]])
def test_responses_that_cannot_be_scored(client, responses):
    answer = client.post("/v1/score", json=asked(responses=responses))
    assert answer.status_code == 400
    assert "responses" in answer.text or "response 0" in answer.text


def test_a_look_is_the_engines(client):
    body = asked(response=RESPONSES[1], relative_to="Describe the image.")
    found = client.post("/v1/look", json=body).json()
    look = embedded().look(
        messages=plain(), response=RESPONSES[1], relative_to="Describe the image."
    )
    assert found["tokens"] == list(look.tokens)
    assert found["count"] == len(look.tokens)
    (picture,) = found["pictures"]
    np.testing.assert_allclose(picture["weights"], look.weights, rtol=2e-3, atol=1e-9)
    np.testing.assert_allclose(picture["baseline"], look.baseline, rtol=2e-3, atol=1e-9)
    np.testing.assert_allclose(picture["boxes"], look.pictures[0].boxes, atol=1e-6)
    np.testing.assert_allclose(found["a"], look.weights.sum(1), atol=1e-6)
    scored = embedded().score(messages=plain(), responses=RESPONSES[1])[0]
    np.testing.assert_allclose(found["a"], scored.visual_lookback, atol=1e-5)


def test_the_other_question_of_a_look_has_a_limit(client):
    body = asked(response=RESPONSES[1], relative_to="x" * 100_001)
    answer = client.post("/v1/look", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "relative_to"


def test_layers_of_a_look(client):
    some = client.post("/v1/look", json=asked(response="A dog.", layers=[0, 2])).json()
    assert some["layers"] == [0, 2]
    answer = client.post("/v1/look", json=asked(response="A dog.", layers=[4, 2]))
    assert answer.status_code == 400


def test_an_engine_that_cannot_look_says_so():
    engine = ToyEngine(frozenset({"sample", "score"}))
    with serving(engine) as client:
        answer = client.post("/v1/look", json=asked(response="red"))
        assert answer.status_code == 400
        assert "toy" in answer.json()["error"]["message"]
        # Neither prunes it, nor does it tell of candidates while they are written.
        told = client.post("/v1/chat/completions", json=asked(lookback={"prune": "half"}))
        assert told.json()["error"]["param"] == "lookback.prune"
        told = client.post("/v1/chat/completions", json=asked(logprobs=True, top_logprobs=2))
        assert told.json()["error"]["param"] == "top_logprobs"
        streamed = client.post("/v1/chat/completions", json=asked(stream=True, seed=3))
        assert streamed.text.endswith("data: [DONE]\n\n")


def test_answers_are_as_the_document_says(client):
    import schemathesis

    document = schemathesis.openapi.from_dict(make_app(embedded(), Settings()).openapi())
    more = {"lookback": {"best_of": 3, "signals": True}, "n": 3, "logprobs": True}
    bodies = {
        "/v1/chat/completions": asked(**more, top_logprobs=2, max_tokens=5),
        "/v1/score": asked(responses=RESPONSES, lookback={"signals": ["entropy"]}),
        "/v1/look": asked(response="A dog."),
    }
    words_alone = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    for path, body in [*bodies.items(), ("/v1/chat/completions", words_alone)]:
        answer = client.post(path, json=body)
        assert answer.status_code == 200
        document[path]["POST"].validate_response(answer)
    for path in ("/v1/models", "/health", "/ready"):
        document[path]["GET"].validate_response(client.get(path))
