"""Real clients: OpenAI's for Python and Node, LangChain's, curl; only the address is changed."""

import asyncio
import json
import shutil
import subprocess

import openai
import pytest
from node_packages import needs_node, packages
from server.serving import asked, embedded, plain, scene_uri
from timeouts import HANG_SECONDS

DRAW = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_tokens": 60}


@pytest.fixture(scope="module")
def best():
    settings = {"seed": 7, "temperature": 1.0, "top_p": 0.9, "max_new_tokens": 60}
    return embedded().sample(messages=plain(), n=4, **settings).rank()


@pytest.fixture
def address(client):
    return f"{client.base_url}".rstrip("/")


ASKED = {"model": "embedded", **asked(), **DRAW, "extra_body": {"lookback": {"best_of": 4}}}


class TestOpenaiPython:
    def test_an_answer(self, address, best):
        found = openai.OpenAI(base_url=f"{address}/v1", api_key="unused").chat.completions.create(
            **ASKED, n=2, logprobs=True, top_logprobs=2, user="somebody"
        )
        assert [one.message.content for one in found.choices] == [one.text for one in best[:2]]
        assert found.choices[0].lookback["score"] == pytest.approx(best[0].score, abs=1e-6)
        tokens = found.choices[0].logprobs.content
        assert [one.token for one in tokens] == list(best[0].tokens)
        assert len(tokens[0].top_logprobs) == 2
        assert found.usage.completion_tokens == sum(len(one.tokens) for one in best[:2])

    def test_a_stream(self, address, best):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="unused")
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(client.chat.completions.create(**ASKED, **options))
        said = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        assert "".join(said) == best[0].text
        assert chunks[-2].choices[0].lookback["rank"] == 1
        assert chunks[-1].usage.completion_tokens == len(best[0].tokens)

    def test_the_helper_for_streams(self, address, best):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="unused")
        with client.chat.completions.stream(**ASKED) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        assert "content.done" in kinds
        assert final.choices[0].message.content == best[0].text

    def test_several_at_once(self, address, best):
        async def ask():
            async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="unused") as client:
                work = [client.chat.completions.create(**ASKED) for _ in range(6)]
                found = await asyncio.gather(*work)
                stream = await client.chat.completions.create(**ASKED, stream=True)
                text = "".join(
                    [
                        chunk.choices[0].delta.content or ""
                        async for chunk in stream
                        if chunk.choices
                    ]
                )
                return {one.choices[0].message.content for one in found} | {text}

        assert asyncio.run(ask()) == {best[0].text}

    def test_its_errors(self, address):
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="unused", max_retries=0)
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(**ASKED, tools=[{"type": "function"}])
        assert refused.value.param == "tools"
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**ASKED | {"model": "gpt-4o"})
        assert [one.id for one in client.models.list()] == ["embedded"]


@needs_node
def test_openai_node(address, best):
    script = __file__.replace("test_clients.py", "client.mjs")
    ran = subprocess.run(
        ["node", script, packages(), address, scene_uri()],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    texts = [one["message"]["content"] for one in found["whole"]["choices"]]
    assert texts == [one.text for one in best[:2]]
    tokens = found["whole"]["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in tokens] == list(best[0].tokens)
    assert found["streamed"] == best[0].text
    assert found["last"]["lookback"]["of"] == 4
    assert found["refused"] == {"status": 400, "param": "tools", "kind": "BadRequestError"}
    assert found["models"] == ["embedded"]


class TestLangchain:
    @pytest.fixture
    def model(self, address):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(
            model="embedded",
            base_url=f"{address}/v1",
            api_key="unused",
            temperature=1.0,
            top_p=0.9,
            seed=7,
            max_tokens=60,
            extra_body={"lookback": {"best_of": 4}},
        )

    def test_an_answer(self, model, best):
        found = model.invoke(asked()["messages"])
        assert found.content == best[0].text
        assert found.usage_metadata["output_tokens"] == len(best[0].tokens)

    def test_log_probabilities(self, model, best):
        found = model.bind(logprobs=True).invoke(asked()["messages"])
        told = found.response_metadata["logprobs"]["content"]
        assert [one["token"] for one in told] == list(best[0].tokens)

    def test_a_stream(self, model, best):
        assert "".join(chunk.content for chunk in model.stream(asked()["messages"])) == best[0].text

    def test_several(self, model, best):
        from langchain_core.messages import HumanMessage

        found = model.generate([[HumanMessage(asked()["messages"][0]["content"])]], n=2)
        assert [one.text for one in found.generations[0]] == [one.text for one in best[:2]]

    def test_asynchronously(self, model, best):
        assert asyncio.run(model.ainvoke(asked()["messages"])).content == best[0].text


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(address, best, tmp_path):
    body = asked(**DRAW, lookback={"best_of": 4})
    (tmp_path / "body.json").write_text(json.dumps(body))
    head = ["-H", "Content-Type: application/json", "-d", f"@{tmp_path / 'body.json'}"]
    url = f"{address}/v1/chat/completions"
    ran = subprocess.run(["curl", "-sS", url, *head], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout)["choices"][0]["message"]["content"] == best[0].text
