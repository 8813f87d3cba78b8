"""Bad inputs: every command ends as `judging.py` says, within its time and its memory.

`make hostile N=10000` runs more of them; a failure here says how to run it alone.
"""

import pytest

from hostile.__main__ import describe
from hostile.kinds import KINDS
from hostile.known import KNOWN

SEED = 20
EACH = 38
"""Cases of every kind: 304 together."""
STEP = 19


def assert_promised(worker, names):
    answers = [worker.try_case(name) for name in names]
    failed = [describe(answer) for answer in answers if answer["wrong"]]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("start", range(0, EACH, STEP))
@pytest.mark.parametrize("kind", KINDS)
def test_bad_inputs_end_as_promised(worker, kind, start):
    assert_promised(worker, [f"{kind}:{SEED}:{start + number}" for number in range(STEP)])


@pytest.mark.parametrize("part", range(4))
def test_what_failed_once_ends_as_promised(worker, part):
    assert_promised(worker, [f"known:{name}" for name in list(KNOWN)[part::4]])
