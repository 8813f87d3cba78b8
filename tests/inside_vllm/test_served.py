"""`lookback serve --engine vllm`: the same server, with many requests in one batch."""

import asyncio
import json

import openai
import pytest
from server.held_engine import until
from server.serving import asked, connected, plain, serving

from lookback.server.settings import Limits, Settings

DRAW = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_tokens": 24}
SAME = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_new_tokens": 24}


@pytest.fixture(scope="module")
def client(inside):
    with serving(inside, Settings(limits=Limits(in_flight=32))) as found:
        yield found


def test_an_answer_is_the_transformers_engines(client, embedded):
    best = embedded.sample(messages=plain(), n=6, **SAME).rank()
    body = asked(
        **DRAW, n=2, logprobs=True, top_logprobs=2, lookback={"best_of": 6, "signals": True}
    )
    found = client.post("/v1/chat/completions", json=body).json()
    assert [one["message"]["content"] for one in found["choices"]] == [one.text for one in best[:2]]
    for choice, one in zip(found["choices"], best, strict=False):
        told = choice["lookback"]
        assert told["score"] == pytest.approx(one.score, abs=1e-3)
        assert told["visual_lookback"] == pytest.approx(one.visual_lookback.tolist(), abs=1e-4)
        assert [len(t["top_logprobs"]) for t in choice["logprobs"]["content"]] == [2] * len(
            one.tokens
        )


def test_many_at_once_and_streams(client, embedded):
    wanted = {
        seed: embedded.sample(messages=plain(), n=3, **SAME | {"seed": seed}).best().text
        for seed in range(6)
    }

    async def ask():
        address = f"{client.base_url}".rstrip("/")
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="unused") as own:

            async def one(seed):
                body = asked(**DRAW | {"seed": seed}) | {"model": "lookback"}
                body["extra_body"] = {"lookback": {"best_of": 3}}
                if seed % 2:
                    answer = await own.chat.completions.create(**body)
                    return seed, answer.choices[0].message.content
                stream = await own.chat.completions.create(**body, stream=True)
                parts = [c.choices[0].delta.content or "" async for c in stream if c.choices]
                return seed, "".join(parts)

            return dict(await asyncio.gather(*map(one, wanted)))

    assert asyncio.run(ask()) == wanted


def test_candidates_are_told_and_one_goes_out_live(client, embedded):
    (one,) = embedded.sample(messages=plain(), n=1, **SAME)
    live = client.post(
        "/v1/chat/completions", json=asked(**DRAW, stream=True, lookback={"best_of": 1})
    )
    chunks = [json.loads(line[6:]) for line in live.text.splitlines() if line.startswith("data: {")]
    told = [
        c["lookback"]
        for chunk in chunks
        for c in chunk["choices"]
        if "start" in c.get("lookback", {})
    ]
    assert [t for part in told for t in part["tokens"]] == list(one.tokens)
    options = {"best_of": 4, "watch": True}
    watched = client.post("/v1/chat/completions", json=asked(**DRAW, stream=True, lookback=options))
    events = [json.loads(s[11:]) for s in watched.text.splitlines() if s.startswith(": lookback ")]
    ends = {c["index"] for e in events for c in e.get("candidates", []) if c["finish"]}
    assert ends == {0, 1, 2, 3}


def test_who_goes_away_is_given_up_in_vllm(client, inside):
    body = asked("Describe the picture.", seed=1, max_tokens=400, temperature=2.0, top_p=1.0)
    body["lookback"] = {"best_of": 64}
    for stream in (False, True):
        with connected(client, body | {"stream": stream}):
            until(lambda: _held(inside) > 0)
        until(lambda: client.app.state.scheduler.at_work == 0)
    assert "lookback_clients_gone_total 2.0" in client.get("/metrics").text
    until(lambda: _held(inside) == 0)


def _held(inside):
    return inside.client.run(inside.client.llm.collective_rpc("lookback_held"))[0]["responses"]


def test_it_cannot_look(client):
    answer = client.post("/v1/look", json=asked(response="A dog."))
    assert answer.status_code == 400
    assert "look" in answer.json()["error"]["message"]
