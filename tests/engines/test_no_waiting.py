"""What a GPU is asked for in a step: no answer is waited for, and endings are looked at seldom."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from engines.reference import prefill
from engines.test_decoder import setup

from lookback.engines.common import logits
from lookback.engines.transformers.decoding import decoder
from lookback.engines.transformers.decoding.decoder import RotationError

PRETEND = Path(__file__).with_name("pretend_device.py")


def test_steps_on_a_device_that_cannot_be_read():
    """In a process of its own: such a device cannot be taken away again."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(PRETEND)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PRETEND.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize("stops", [False, True])
def test_looking_seldom_changes_nothing(stops):
    _, decoding, inputs = setup("llava")
    prefix = prefill(decoding, inputs)
    settings = {"temperature": 1.5, "top_p": 0.95, "top_k": None, "max_new_tokens": 21, "seed": 3}
    settings["end_tokens"] = range(0, 400, 9)
    if stops:
        settings["stopped"] = lambda ids: ids[-1] % 7 == 0
    often = decoding.sample(prefix, 8, **settings)
    assert {one.finish for one in often} >= {"end", "stop"} if stops else {"end"}
    assert len({len(one.token_ids) for one in often}) > 2
    for every in (3, 8, 100):
        decoding.read_every = every
        seldom = decoding.sample(prefix, 8, **settings)
        for one, other in zip(often, seldom, strict=True):
            assert one.token_ids == other.token_ids
            assert one.finish == other.finish
            np.testing.assert_allclose(one.signals, other.signals, atol=1e-5, rtol=1e-5)


def test_branches_that_save_work_change_nothing(monkeypatch):
    """Where a look is free, easy cases are done the easy way; elsewhere all are done alike."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 50, generator=generator)
    rows[1, 7:20] = -torch.inf
    rows[2, 30:] = torch.finfo(torch.float32).min
    rows[3] = rows[3].round()  # ties at the edge of the nucleus
    ids = torch.randint(0, 7, (6,), generator=generator)
    found = [logits.token_stats(rows[i : i + 1], ids[i : i + 1]) for i in range(6)]
    probs = [logits.next_token_probs(row[None], 1.2, 0.9) for row in rows]
    monkeypatch.setattr(logits, "cheap_to_read", lambda tensor: False)
    torch.testing.assert_close(
        torch.stack(logits.token_stats(rows, ids)),
        torch.cat([torch.stack(one) for one in found], 1),
    )
    torch.testing.assert_close(logits.next_token_probs(rows, 1.2, 0.9), torch.cat(probs))


def test_logits_that_are_not_numbers_are_refused(monkeypatch):
    """At the next look, and never as an index beyond the vocabulary."""
    _, decoding, inputs = setup("llava")
    prefix = prefill(decoding, inputs)
    forward = decoding.forward

    def broken(ids, cache, reader, mode=None):
        found, lookback = forward(ids, cache, reader, mode)
        return found * torch.nan, lookback

    monkeypatch.setattr(decoding, "forward", broken)
    for every in (1, 4, 100):
        decoding.read_every = every
        with pytest.raises(FloatingPointError, match="not finite"):
            decoding.sample(
                prefix, 3, temperature=1.0, top_p=0.9, top_k=None, max_new_tokens=9, seed=0,
                end_tokens=[],
            )  # fmt: skip


def test_where_positions_turn_every_step_is_looked_at(monkeypatch):
    """What has ended must not be sent on beyond that length, whatever a look costs."""
    _, decoding, inputs = setup("llava")
    prefix = prefill(decoding, inputs)
    monkeypatch.setattr(decoder, "cheap_to_read", lambda tensor: False)

    def check_rotation(prefix, fed, rows):
        if fed + rows > 2:
            raise RotationError(f"after {fed} tokens")

    monkeypatch.setattr(decoding, "_check_rotation", check_rotation)
    settings = {"temperature": 1.0, "top_p": 1.0, "top_k": None, "max_new_tokens": 9, "seed": 0}
    drawn = decoding.sample(prefix, 3, end_tokens=range(decoding.vocab), **settings)
    assert [one.finish for one in drawn] == ["end"] * 3
    with pytest.raises(RotationError, match="after 2 tokens"):
        decoding.sample(prefix, 3, end_tokens=[], **settings)


def test_the_default_waits_only_where_it_costs_nothing():
    assert decoder.READ_EVERY > 1
    assert logits.cheap_to_read(torch.empty(1))
    assert not logits.cheap_to_read(torch.empty(1, device="meta"))
