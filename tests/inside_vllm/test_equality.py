"""Inside vLLM the embedded model gives the transformers engine's numbers, whatever vLLM does."""

import asyncio
import threading

import numpy as np
import pytest
from engines.reference import noise
from server.held_engine import until

import lookback
from lookback.signals import SIGNALS

CLOSE = 1e-4
DRAW = {"max_new_tokens": 24, "temperature": 1.2, "top_p": 0.9}


def equal(first, second, tolerance=CLOSE):
    """The same tokens, ends, ranking and numbers."""
    assert first.prompt_ids.tolist() == second.prompt_ids.tolist()
    assert [c.token_ids.tolist() for c in first] == [c.token_ids.tolist() for c in second]
    assert [(c.text, c.finish) for c in first] == [(c.text, c.finish) for c in second]
    for a, b in zip(first, second, strict=True):
        for name in SIGNALS:
            found = getattr(a, name)
            assert len(found) == len(a.tokens)
            np.testing.assert_allclose(found, getattr(b, name), atol=tolerance, rtol=tolerance)
    if len(first.scorable()) == len(first):
        scores = [np.array(one.scores("lookback")) for one in (first, second)]
        np.testing.assert_allclose(*scores, atol=tolerance)
        order = np.argsort(-scores[1], kind="stable")
        assert (np.diff(scores[0][order]) <= 2 * tolerance).all()  # the same ranking, but for ties


def held(engine):
    """What the workers keep."""
    return engine.client.run(engine.client.llm.collective_rpc("lookback_held"))


def test_twenty_five_candidates(inside, embedded):
    asked = (noise(3), "Describe the picture.", 25)
    equal(inside.sample(*asked, seed=7, **DRAW), embedded.sample(*asked, seed=7, **DRAW))


def test_a_repeated_image_is_read_from_the_cache(inside, embedded):
    asked = (noise(4), "What color is the cup?", 4)
    alone = embedded.sample(*asked, seed=1, **DRAW)
    for _ in range(3):
        equal(inside.sample(*asked, seed=1, **DRAW), alone)
    hits = _metric(inside, "prefix_cache_hits")
    assert hits is None or hits > 0


def test_what_an_answer_was_is_not_in_the_cache_of_scores(inside, embedded):
    drawn = inside.sample(noise(5), "Describe the picture.", 3, seed=2, max_new_tokens=70)
    for _ in range(2):  # the second time all of it has been cached
        equal(
            inside.score(noise(5), "Describe the picture.", list(drawn)),
            embedded.score(noise(5), "Describe the picture.", list(drawn)),
        )


def test_another_source_of_a_cached_prompt_is_another_number(inside, embedded):
    images, texts = [noise(1), noise(2)], ["a red cup", "two books and a lamp"]
    for source in (None, "image:0", "image:1", "none", None, "image:1"):
        found = inside.score(images, "What is there?", texts, source=source)
        equal(found, embedded.score(images, "What is there?", texts, source=source))


def test_a_marked_text_can_be_the_source(inside, embedded):
    content = [
        {"type": "image", "image": noise(1)},
        {"type": "text", "text": "A cup is on the left.", "source": True},
        {"type": "text", "text": "What is there?"},
    ]
    messages = [{"role": "user", "content": content}]
    for chosen in ("marked", None, "last-turn"):
        settings = {"messages": messages, "responses": ["a cup"], "source": chosen}
        equal(inside.score(**settings), embedded.score(**settings))


def test_thirty_questions_in_flight(inside, embedded):
    rng = np.random.default_rng(0)
    asked = [
        {
            "image": [noise(i)] if i % 5 else [noise(i), noise(i + 1)],
            "question": ["Describe the picture.", "Is there a cup?", "What color is it?"][i % 3],
            "n": 1 + i % 4,
            "max_new_tokens": int(rng.integers(1, 40)),
            "temperature": [0.0, 0.7, 1.2][i % 3],
            "top_k": [None, 5][i % 2],
            "seed": i,
        }
        for i in range(30)
    ]
    for together, one in zip(inside.sample_many(asked), asked, strict=True):
        equal(together, embedded.sample(**one))
    assert held(inside)[0]["responses"] == 0


def test_threads_share_the_batch(inside, embedded):
    found = {}

    def ask(i):
        found[i] = inside.sample(noise(i), "Describe the picture.", 2, seed=i, **DRAW)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, one in found.items():
        equal(one, embedded.sample(noise(i), "Describe the picture.", 2, seed=i, **DRAW))


def test_coroutines_of_another_loop(inside, embedded):
    async def ask():
        work = [
            inside.asample(noise(i), "Describe the picture.", 2, seed=i, **DRAW) for i in range(3)
        ]
        scored = inside.ascore(noise(9), "What is there?", ["a cup", "two books"])
        return await asyncio.gather(*work, scored)

    *drawn, scored = asyncio.run(ask())
    for i, one in enumerate(drawn):
        equal(one, embedded.sample(noise(i), "Describe the picture.", 2, seed=i, **DRAW))
    equal(scored, embedded.score(noise(9), "What is there?", ["a cup", "two books"]))


def test_an_aborted_question_leaves_nothing_behind(inside, embedded):
    async def ask():
        begun = asyncio.Event()
        settings = {"max_new_tokens": 300, "progress": lambda *_: begun.set()}
        work = inside.asample(noise(1), "Describe the picture.", 16, seed=1, **settings)
        task = asyncio.create_task(work)
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    asked = (noise(2), "Describe the picture.", 4)
    equal(inside.sample(*asked, seed=3, **DRAW), embedded.sample(*asked, seed=3, **DRAW))
    until(lambda: held(inside)[0]["responses"] == 0)
    assert held(inside)[0]["requests"] <= 8


def test_nothing_grows_with_what_is_done(inside):
    for seed in range(3):
        inside.sample_many(
            [{"image": noise(i), "question": "?", "seed": seed} for i in range(8)],
            n=4,
            max_new_tokens=4,
        )
    (kept,) = held(inside)
    assert kept["responses"] == 0
    assert kept["requests"] <= 64  # of the last batch


def test_signals_by_layer(inside, embedded):
    asked = (noise(3), "Describe the picture.", 3)
    a = inside.sample(*asked, seed=7, by_layer=True, **DRAW)
    b = embedded.sample(*asked, seed=7, by_layer=True, **DRAW)
    equal(a, b)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_allclose(one.by_layer, other.by_layer, atol=CLOSE)
        np.testing.assert_allclose(one.by_layer.mean(1), one.visual_lookback, atol=1e-6)


def test_stop_texts_and_ends(inside, embedded):
    for settings in ({"stop": ["."]}, {"stop": "and"}, {"keep_end": True}):
        asked = (noise(6), "Describe the picture.", 6)
        ours = inside.sample(*asked, seed=4, max_new_tokens=60, **settings)
        equal(ours, embedded.sample(*asked, seed=4, max_new_tokens=60, **settings))


@pytest.mark.parametrize("more", [{}, {"stop": "."}, {"by_layer": True}, {"keep_end": True}])
def test_the_worst_are_ended_early(inside, embedded, more):
    asked = (noise(3), "Describe the picture.", 12)
    settings = {"seed": 7, "max_new_tokens": 40, "prune": [(6, 6), (20, 3)]} | more
    ours, plain = inside.sample(*asked, **settings), embedded.sample(*asked, **settings)
    equal(ours, plain)
    assert "pruned" in {c.finish for c in ours}
    assert ours.sampling == plain.sampling
    assert held(inside)[0]["responses"] == 0


def test_blocks_that_are_taken_away_while_candidates_are_written(inside, embedded):
    """All requests lose their blocks at once and are read again, in the same batch."""
    asked = (noise(8), "Describe the picture.", 12)
    settings = {"seed": 5, "max_new_tokens": 120}

    async def ask():
        steps = asyncio.Queue()
        heard = {"progress": lambda *step: steps.put_nowait(step)}
        task = asyncio.create_task(inside.asample(*asked, **settings, **heard))
        for _ in range(3):
            await steps.get()  # more of them were written
            await inside.client.llm.reset_prefix_cache(reset_running_requests=True)
        return await task

    equal(inside.client.run(ask()), embedded.sample(*asked, **settings))


def test_what_does_not_fit_is_said(inside):
    with pytest.raises(ValueError, match="the model takes 512"):
        inside.score(noise(1), "What is there?", ["cup " * 600])
    with pytest.raises(ValueError, match="512"):
        inside.sample(noise(1), "What " * 600, 2)


class TestInLittleRoom:
    """Prompts in pieces, no prefix cache, and so few blocks that requests lose theirs."""

    @pytest.fixture(scope="class")
    @classmethod
    def narrow(cls):
        engine = lookback.load(
            engine="vllm",
            enable_prefix_caching=False,
            max_num_batched_tokens=48,
            max_num_seqs=16,
            max_model_len=256,
            num_gpu_blocks_override=24,
            disable_log_stats=False,
        )
        yield engine
        engine.close()

    def test_chunks_and_preemption(self, narrow, embedded):
        asked = [
            {"image": noise(i % 4), "question": "Describe the picture.", "n": 3, "seed": i}
            for i in range(5)  # the first picture twice: nothing of it is kept
        ]
        settings = {"max_new_tokens": 60}
        for together, one in zip(narrow.sample_many(asked, **settings), asked, strict=True):
            equal(together, embedded.sample(**one, **settings))
        assert _metric(narrow, "num_preemptions") > 0

    def test_given_responses_in_chunks(self, narrow, embedded):
        texts = ["two books and a lamp " * 4, "a red cup", "a clock in the top left"]
        equal(
            narrow.score(noise(1), "What is there?", texts),
            embedded.score(noise(1), "What is there?", texts),
        )


def _metric(engine, name):
    """A counter of vLLM's, if it keeps any."""
    from prometheus_client import REGISTRY

    values = [
        sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if name in sample.name and sample.name.endswith("_total")
    ]
    return sum(values) if values else None


def test_requests_of_others_do_not_notice_the_tap(inside):
    """The same tokens and log-probabilities with the tap and without, beside our own requests."""
    from uuid import uuid4

    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    from lookback.conversations import Conversation

    client = inside.client

    async def plain(prompt, **settings):
        params = SamplingParams(
            max_tokens=20,
            logprobs=3,
            prompt_logprobs=1,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **settings,
        )
        async for out in client.llm.generate(prompt.rendered, params, uuid4().hex):
            final = out
        (one,) = final.outputs
        said = [
            sorted((token, found.logprob) for token, found in row.items()) for row in one.logprobs
        ]
        return list(one.token_ids), said, one.text, str(final.prompt_logprobs)

    async def all_of(prompts, beside):
        work = [
            plain(prompt, **settings)
            for prompt in prompts
            for settings in (
                {"temperature": 0.0},
                {"temperature": 1.0, "seed": 3},
                {"temperature": 1.3, "top_p": 0.8, "top_k": 20, "seed": 4},
                {"temperature": 0.0, "repetition_penalty": 1.3, "min_tokens": 10},
            )
        ]
        ours = [inside.asample(noise(i), "?", 3, seed=i, **DRAW) for i in range(beside)]
        found = await asyncio.gather(*work, *ours)
        return found[: len(work)]

    prompts = [
        client.run(inside.prompts.of(Conversation.of(noise(i), "Describe the picture."), None))
        for i in range(3)
    ]

    def ask(beside):
        client.run(client.llm.reset_prefix_cache())
        return client.run(all_of(prompts, beside))

    with_tap = ask(0)
    assert ask(0) == with_tap
    client.run(client.llm.collective_rpc("lookback_switch", args=(False,)))
    try:
        assert ask(0) == with_tap
    finally:
        client.run(client.llm.collective_rpc("lookback_switch", args=(True,)))
        client.run(client.llm.reset_prefix_cache())
    for (ids, said, text, _), (again, alike, same_text, _) in zip(ask(4), with_tap, strict=True):
        assert (ids, text) == (again, same_text)
        for row, other in zip(said, alike, strict=True):
            assert [token for token, _ in row] == [token for token, _ in other]
            np.testing.assert_allclose([x for _, x in row], [x for _, x in other], atol=1e-5)
