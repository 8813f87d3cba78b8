"""The words of questions, by kind of question."""

from __future__ import annotations

QUESTIONS: dict[str, tuple[str, ...]] = {
    "color": (
        "what color is the {ref}?",
        "which color does the {ref} have?",
        "what is the color of the {ref}?",
    ),
    "is_color": ("is the {ref} {asked}?", "is the color of the {ref} {asked}?"),
    "size": ("is the {ref} small or large?", "what size is the {ref}?", "how big is the {ref}?"),
    "exists": (
        "is there {np} in the picture?",
        "can you see {np}?",
        "does the picture show {np}?",
        "is there {np}?",
    ),
    "count": (
        "how many {nouns} are there?",
        "how many {nouns} are in the picture?",
        "how many {nouns} can you see?",
    ),
    "is_count": ("are there {asked} things in the picture?", "can you see {asked} things?"),
    "where": (
        "where is the {ref}?",
        "where in the picture is the {ref}?",
        "where can you see the {ref}?",
    ),
    "what": (
        "what is {place}?",
        "what is {place} of the picture?",
        "which thing is {place}?",
        "what can you see {place}?",
    ),
    "is_at": ("is the {ref} {asked}?", "can you see the {ref} {asked}?"),
    "is_related": ("is the {ref} {asked} the {landmark}?",),
}
