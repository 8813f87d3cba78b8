"""The world of Scenes as data: what there is, how it usually looks, where, and beside what.

The numbers are biased on purpose: a model that trusts its priors answers "red" for every apple and
is wrong in a third of the pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

IMAGE_SIZE = 80  # pixels; 10 x 10 patches of 8 pixels

# name: RGB of the main surface
COLORS: dict[str, tuple[int, int, int]] = {
    "red": (214, 36, 40),
    "orange": (245, 140, 24),
    "yellow": (246, 222, 52),
    "green": (52, 158, 62),
    "blue": (42, 92, 214),
    "purple": (140, 58, 178),
    "brown": (122, 74, 38),
    "white": (246, 246, 246),
}

SIZES = ("small", "large")

# Row by row, as one reads. The row's word comes first and the column's second; "center" is both.
PLACES = (
    "top left",
    "top center",
    "top right",
    "middle left",
    "center",
    "middle right",
    "bottom left",
    "bottom center",
    "bottom right",
)

# P(colour | category): the category's main colour, its second one, and the six others together.
P_MAIN, P_SECOND, P_OTHER = 0.65, 0.15, 0.20

# P(row | category), top to bottom, by where a category belongs.
ROWS: dict[str, tuple[float, float, float]] = {
    "sky": (0.70, 0.20, 0.10),
    "ground": (0.10, 0.25, 0.65),
    "anywhere": (1 / 3, 1 / 3, 1 / 3),
}


@dataclass(frozen=True)
class Category:
    """A kind of thing.

    Attributes:
        plural: the noun's plural.
        main, second: its commonest and second commonest colour.
        home: the row of `ROWS` it follows.
        large: how often it is large.
        synonyms: other singular nouns for it; the parser knows them, generated text does not.
    """

    plural: str
    main: str
    second: str
    home: str
    large: float
    synonyms: tuple[str, ...] = ()


CATEGORIES: dict[str, Category] = {
    "sun": Category("suns", "yellow", "orange", "sky", 0.6, ("sunshine",)),
    "moon": Category("moons", "white", "yellow", "sky", 0.6, ("crescent", "crescent moon")),
    "star": Category("stars", "yellow", "white", "sky", 0.3),
    "cloud": Category("clouds", "white", "blue", "sky", 0.7),
    "bird": Category("birds", "blue", "brown", "sky", 0.3, ("parrot", "sparrow")),
    "kite": Category("kites", "purple", "red", "sky", 0.5),
    "tree": Category("trees", "green", "orange", "ground", 0.8),
    "flower": Category("flowers", "purple", "red", "ground", 0.3, ("blossom",)),
    "mushroom": Category("mushrooms", "red", "brown", "ground", 0.3, ("toadstool",)),
    "apple": Category("apples", "red", "green", "anywhere", 0.3),
    "house": Category("houses", "brown", "white", "ground", 0.8, ("building", "home")),
    "car": Category("cars", "red", "blue", "ground", 0.7, ("automobile", "vehicle")),
    "flag": Category("flags", "blue", "red", "anywhere", 0.5, ("banner",)),
    "boat": Category(
        "boats", "brown", "white", "ground", 0.7, ("ship", "sailboat", "sailing boat")
    ),
    "fish": Category("fish", "orange", "blue", "ground", 0.4),
    "umbrella": Category("umbrellas", "blue", "purple", "anywhere", 0.6, ("parasol",)),
    "cup": Category("cups", "blue", "white", "anywhere", 0.4, ("mug",)),
    "book": Category("books", "green", "brown", "anywhere", 0.4),
    "clock": Category("clocks", "white", "brown", "anywhere", 0.5, ("watch",)),
    "lamp": Category("lamps", "green", "yellow", "anywhere", 0.5),
    "key": Category("keys", "yellow", "brown", "anywhere", 0.3),
    "chair": Category("chairs", "brown", "green", "ground", 0.7, ("seat",)),
    "hat": Category("hats", "purple", "brown", "anywhere", 0.4, ("top hat",)),
    "ball": Category("balls", "orange", "green", "ground", 0.4, ("beach ball",)),
    "heart": Category("hearts", "red", "purple", "anywhere", 0.5),
}

# What is seen together. A scene has one group; P_IN_GROUP of its things come from there.
GROUPS: dict[str, tuple[str, ...]] = {
    "sea": ("boat", "fish", "sun", "bird", "cloud", "flag"),
    "street": ("house", "tree", "car", "flag", "cloud", "umbrella"),
    "study": ("lamp", "book", "clock", "chair", "key", "cup"),
    "garden": ("flower", "tree", "mushroom", "bird", "apple", "sun"),
    "night": ("moon", "star", "house", "lamp", "key", "tree"),
    "party": ("ball", "heart", "hat", "kite", "star", "cup"),
    "hall": ("hat", "umbrella", "key", "clock", "chair", "heart"),
    "picnic": ("apple", "cup", "ball", "kite", "book", "fish"),
    "meadow": ("mushroom", "flower", "kite", "moon", "car", "sun"),
}
P_IN_GROUP = 0.8
P_TWIN = 0.12  # a further thing repeats the category of one before it ...
P_TWIN_SAME = 0.6  # ... and its colour

# P(number of things in a scene)
COUNTS: dict[int, float] = {2: 0.12, 3: 0.25, 4: 0.29, 5: 0.22, 6: 0.12}


def color_weights(category: str) -> tuple[float, ...]:
    """P(colour | category), in the order of `COLORS`."""
    kind = CATEGORIES[category]
    special = {kind.main: P_MAIN, kind.second: P_SECOND}
    return tuple(special.get(color, P_OTHER / (len(COLORS) - 2)) for color in COLORS)
