"""Which of COCO's 80 categories a caption speaks of, by the rules of CHAIR.

The table has the words that count as one of the categories, in their dictionary form. It keeps to
the vocabulary that CHAIR's published numbers rest on. A word that is missing ("pedestrian") does
not count there either, or stands there in a form that never matches ("cheesecake", "iPhone" and
"motor bike"): adding it would move every number away from the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lookback.benchmarks.files import read_text
from lookback.io.storage import AnyPath

# Category: further names, of one word each.
_TABLE = {
    # People
    "person": """people adult baby boy child children father female gentleman girl grandchild guy
        kid lady male man mother sister teenager woman
        baker bride buyer caller camper chef cop coworker cowboy doctor drinker foreigner groom
        hunter offender officer passenger patient policeman politician serviceman shopper soldier
        solider student thief traveler trespasser villager walker worker
        bicyclist biker driver pitcher player rider skateboarder skater skier snowboarder""",
    # Vehicles
    "bicycle": "bike minibike trike unicycle",
    "car": "automobile cab coupe hatchback jeep limo minivan sedan suv taxi taxicab van",
    "motorcycle": "moped motorbike scooter",
    "airplane": "airbus aircraft biplane jet jetliner monoplane plane seaplane",
    "bus": "minibus trolley",
    "train": "caboose locomotive tramway",
    "truck": "firetruck hauler lorry pickup",
    "boat": """barge battleship canoe catamaran dinghy ferry ferryboat freighter houseboat kayak
        lifeboat liner motorboat paddleboat pontoon powerboat riverboat rowboat sailboard sailboat
        schooner ship skiff speedboat steamboat steamship trawler tugboat vessel watercraft
        yacht""",
    # In the street
    "traffic light": "stoplight streetlight",
    "fire hydrant": "hydrant",
    "stop sign": "",
    "parking meter": "",
    "bench": "pew",
    # Animals
    "bird": """blackbird bluebird bluejay buzzard chickadee cockatiel cockatoo condor cormorant
        cowbird crow duck egret falcon finch flamingo fowl goose gosling gull heron hummingbird
        kingfisher loon lorikeet macaw magpie mallard oriole osprey ostrich owl parakeet parrot
        peacock peafowl pelican pheasant pigeon puffin quail raven robin rooster sandpiper seabird
        seagull shorebird songbird sparrow swan turkey vulture warbler waterbird waterfowl willet
        woodpecker""",
    "cat": "feline kitten tabby",
    "dog": """beagle brindle bulldog canine chihuahua cocker collie corgi dachshund doberman doggie
        doggy greyhound hound husky labrador mutt pitbull poodle pug pup puppy retriever rottweiler
        schnauzer sheepdog spaniel terrier weimaraner whippet""",
    "horse": """bronc bronco clydesdale colt equine foal mare mustang palomino pony racehorse
        stallion""",
    "sheep": "ewe goat lamb ram",
    "cow": "bison buffalo bull calf cattle heifer holstein ox oxen zebu",
    "elephant": "",
    "bear": "panda",
    "zebra": "",
    "giraffe": "",
    # Carried and worn
    "backpack": "knapsack",
    "umbrella": "",
    "handbag": "briefcase purse wallet",
    "tie": "bow",
    "suitcase": "luggage",
    # Sports
    "frisbee": "",
    "skis": "ski",
    "snowboard": "",
    "sports ball": "ball",
    "kite": "",
    "baseball bat": "",
    "baseball glove": "",
    "skateboard": "",
    "surfboard": "longboard shortboard skimboard wakeboard",
    "tennis racket": "racket",
    # On the table
    "bottle": "",
    "wine glass": "",
    "cup": "",
    "fork": "",
    "knife": "pocketknife",
    "spoon": "",
    "bowl": "container",
    "banana": "",
    "apple": "",
    "sandwich": "burger cheeseburger hamburger sub",
    "orange": "",
    "broccoli": "",
    "carrot": "",
    "hot dog": "",
    "pizza": "",
    "donut": "bagel doughnut",
    "cake": "coffeecake cupcake pancake shortcake",
    # In the house
    "chair": "seat stool",
    "couch": "chesterfield futon loveseat recliner settee sofa",
    "potted plant": "houseplant",
    "bed": "",
    "dining table": "desk table",
    "toilet": "commode lavatory potty urinal",
    "tv": "monitor television televison",
    "laptop": "computer lenovo macbook netbook notebook",
    "mouse": "",
    "remote": "",
    "keyboard": "",
    "cell phone": "cellphone phone smartphone telephone",
    "microwave": "",
    "oven": "stove stovetop",
    "toaster": "",
    "sink": "",
    "refrigerator": "freezer fridge",
    "book": "",
    "clock": "",
    "vase": "",
    "scissors": "",
    "teddy bear": "teddybear",
    "hair drier": "hairdryer",
    "toothbrush": "",
}
CATEGORIES = tuple(_TABLE)

_ANIMALS = (
    *("bird", "cat", "dog", "horse", "sheep", "cow"),
    *("elephant", "bear", "zebra", "giraffe", "animal", "cub"),
)

# Names of two words beside the categories' own.
_TWO_WORDS = {
    "motorcycle": ("motor cycle",),
    "airplane": ("air plane",),
    "traffic light": ("stop light", "street light", "traffic signal"),
    "tie": ("bow tie",),
    "suitcase": ("suit case",),
    "laptop": ("laptop computer",),
    "cell phone": ("mobile phone",),
}

CATEGORY_OF: Mapping[str, str] = {
    word: category
    for category, words in _TABLE.items()
    for word in (category, *words.split(), *_TWO_WORDS.get(category, ()))
}

# Neighbours that are one word, and the word that they are.
PAIRS: Mapping[str, str] = {
    **{name: name for name in CATEGORY_OF if " " in name},
    "bow tie": "tie",
    "toilet seat": "toilet",
    "wine glas": "wine glass",  # what some singularizers make of "wine glass"
    # A young animal is not a person, and neither is a train for passengers
    **{f"{age} {animal}": animal for age in ("baby", "adult") for animal in _ANIMALS},
    "passenger jet": "jet",
    "passenger train": "train",
    # Of no category: here so that they do not count as a train, and so on
    "train track": "train track",
    "home plate": "home plate",
    "motor bike": "motor bike",
}


def read_synonyms(path: AnyPath) -> dict[str, str]:
    """The words of an original `synonyms.txt`, each with its category.

    A line is a category, its name first, the words separated by a comma and one blank. As in the
    public code, a word that has a further blank in front or a capital matches no text.

    Raises:
        ValueError: the file is not of that form, or empty.
    """
    category_of = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        names = line.strip().split(", ")
        if names == [""]:
            continue
        if names[0] not in _TABLE:
            raise ValueError(
                f"{str(path)!r}, line {number}: {names[0]!r} is not one of COCO's 80 categories; "
                "a line is a category and its synonyms, separated by a comma and a blank"
            )
        category_of.update(dict.fromkeys(names, names[0]))
    if not category_of:
        raise ValueError(f"{str(path)!r} has no words: no object could be found with it")
    return category_of


def located(
    lemmas: Sequence[str], category_of: Mapping[str, str] = CATEGORY_OF
) -> list[tuple[str, int, int]]:
    """Return every mention of an object, in order: (category, first word, end)."""
    objects = _merged(lemmas)
    if any(word == "toilet" for word, _, _ in objects):  # "the seat of the toilet" is no chair
        objects = [found for found in objects if found[0] != "seat"]
    return [(category_of[word], a, b) for word, a, b in objects if word in category_of]


def _merged(lemmas: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the words, from the left, with each pair as one."""
    merged, position = [], 0
    while position < len(lemmas):
        pair = " ".join(lemmas[position : position + 2])
        end = position + (2 if pair in PAIRS else 1)
        merged.append((PAIRS.get(pair, lemmas[position]), position, end))
        position = end
    return merged
