"""Models of other families inside vLLM: positions in three dimensions, tiles, sliding windows."""

import pytest
from engines.reference import noise
from inside_vllm.models import save
from inside_vllm.test_equality import equal

import lookback

NAMES = ["qwen2_5_vl", "idefics3", "llava+gemma3_text"]
# Each engine takes a while to start: these by `pytest -m zoo tests/inside_vllm`.
MORE = [
    *("llava_gqa", "llava_next", "llava_onevision", "qwen2_vl", "qwen3_vl", "internvl", "mistral3"),
    *("llava+mistral", "llava+phi3", "llava+qwen3_moe"),
]


@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(n, marks=pytest.mark.zoo) for n in MORE)])
def test_as_on_the_transformers_engine(name, tmp_path):
    save(name, tmp_path)
    plain = lookback.load(tmp_path, dtype="float32")
    inside = lookback.load(tmp_path, engine="vllm", max_num_seqs=16, max_model_len=1024)
    try:
        asked = (noise(1), "what is it?", 4)
        settings = {"max_new_tokens": 12, "seed": 1}
        drawn = plain.sample(*asked, **settings)
        equal(inside.sample(*asked, **settings), drawn)
        images = [noise(2), noise(3, (64, 40))]
        given = [c.token_ids.tolist() for c in drawn.scorable()][:2]
        for source in (None, "image:1"):
            equal(
                inside.score(images, "what?", given, source=source),
                plain.score(images, "what?", given, source=source),
            )
        assert inside.check().ok
    finally:
        inside.close()
