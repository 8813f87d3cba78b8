"""Which answer stands on which side."""

import pytest

from lookback.annotation.votes import is_swapped, rater_code


def slow_bit(text):
    """FNV-1a and MurmurHash3's fmix32, written as their authors describe them."""
    value = 2166136261
    for byte in text.encode():
        value ^= byte
        value = value * 16777619 % 2**32
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value ^= value // 2**shift
        value = value * factor % 2**32
    value ^= value // 2**16
    return value % 2 == 1


def test_it_is_the_published_hash():
    for rater in ("r1", "anna@b-c.d_e"):
        for case in range(1, 40):
            assert is_swapped("0f", rater, 2, case) is slow_bit(f"0f\n{rater}\n2\n{case}")


def test_sides_are_shuffled_over_raters_and_over_cases():
    raters = [f"r{i}" for i in range(60)]
    table = [[is_swapped("abc", rater, 1, case) for case in range(1, 51)] for rater in raters]
    assert 0.47 < sum(map(sum, table)) / 3000 < 0.53
    assert all(10 < sum(line) < 40 for line in table)
    assert all(12 < sum(column) < 48 for column in zip(*table, strict=True))
    assert len({tuple(line) for line in table}) == 60  # no two raters see the same sides
    agree = [sum(a == b for a, b in zip(table[i], table[i + 1], strict=True)) for i in range(59)]
    assert 0.45 < sum(agree) / (59 * 50) < 0.55  # nor do codes that differ by one


def test_codes():
    assert rater_code("  Anna.B_2@x-y \n") == "anna.b_2@x-y"
    for bad in ("", "   ", "a b", "ä", "x" * 41, "a\nb", "<b>", "\ud800"):
        with pytest.raises(ValueError, match="1 to 40 letters"):
            rater_code(bad)
