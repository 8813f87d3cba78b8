"""Two tensor-parallel workers: each reads its own heads, and together they are the model's."""

import pytest
from engines.reference import noise
from inside_vllm.test_equality import DRAW, equal
from inside_vllm.test_listening import Ear, begins, nothing_is_left, same_top

import lookback


@pytest.fixture(scope="module")
def two():
    with pytest.MonkeyPatch.context() as patch:
        # vLLM gives each worker a NUMA node of its own, and a small machine has one.
        patch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        patch.setenv("OMP_NUM_THREADS", "1")
        engine = lookback.load(engine="vllm", tensor_parallel_size=2, max_num_seqs=32)
    yield engine
    engine.close()


def test_heads_of_two_workers(two, embedded):
    assert two.client.workers.count == 2
    asked = (noise(3), "Describe the picture.", 8)
    equal(two.sample(*asked, seed=7, **DRAW), embedded.sample(*asked, seed=7, **DRAW))
    texts = ["a red cup", "two books and a lamp"]
    images = [noise(1), noise(2)]
    equal(
        two.score(images, "What is there?", texts, source="image:1", by_layer=True),
        embedded.score(images, "What is there?", texts, source="image:1", by_layer=True),
    )
    assert two.check().ok


def test_candidates_of_two_workers_are_heard(two, embedded):
    asked = {"image": noise(3), "question": "Describe the picture.", "n": 8, "seed": 7} | DRAW
    asked |= {"by_layer": True, "top_log_probs": 3}
    ear = Ear()
    ours = two.sample(**asked, listen=ear.listener)
    plain = embedded.sample(**asked)
    equal(ours, plain)
    same_top(ours, embedded, asked)
    assert sum(len(call) for call in ear.calls) > 16
    for call in ear.calls:
        for c in call:
            begins(c, plain[c.index])
    nothing_is_left(two)
