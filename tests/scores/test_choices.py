"""Which letter a reply chooses."""

import pytest

from lookback.scores.judges import chosen_letter


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("a", "A"),
        ("(B)", "B"),
        ("[C]", "C"),
        ("**C**", "C"),
        ("B.", "B"),
        ("'B'", "B"),
        ("B) A and C are wrong", "B"),
        ("(B) A dog, not C", "B"),
        ("A. a dog", "A"),
        ("C\nA is wrong", "C"),
        ("B, because A is blurred", "B"),
        ("B - blue", "B"),
        ("The answer is B", "B"),
        ("The answer is 'B'.", "B"),
        ("The correct answer is (D).", "D"),
        ("The answer is A because it fits", "A"),
        ("**Answer:** C", "C"),
        ("Option B) a dog", "B"),
        ("The answer is option D, not A", "D"),
        ("Choice: D", "D"),
        ("I think it is C", "C"),
        ("I'd say B", "B"),
        ("A man rides, so C", "C"),
        ("The answer is I", "I"),
        ("I", "I"),
        ("A dog", None),  # the article
        ("Answer: A dog", None),
        ("The answer is A small dog", None),
        ("It is a dog", None),
        ("I see nothing", None),
        ("A, B and C", None),
        ("A or B", None),
        ("Option A is as good as option B", None),
        ("e.g. a dog", None),
        ("Apple", None),
        ("", None),
        (" \n", None),
    ],
)
def test_replies(reply, letter):
    assert chosen_letter(reply) == letter


def test_only_the_letters_given_can_be_chosen():
    assert chosen_letter("C", "AB") is None
    assert chosen_letter("C is wrong, take B", "AB") == "B"
