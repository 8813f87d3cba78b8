"""What the local tasks do with a document."""

CHOICES = ["red", "blue", "a dog with two heads"]


def visual(doc):
    return [] if doc["image"] is None else [doc["image"]]


def both(doc):
    return [] if doc["image"] is None else [doc["image"], doc["second"]]


def text(doc, lmms_eval_specific_kwargs=None):
    return doc["question"]


def within(doc, lmms_eval_specific_kwargs=None):
    """Texts are made of documents without their images; the last has none anyway."""
    return "First <image> then <image> " + doc["question"] if doc["shown"] else doc["question"]


def messages(doc, lmms_eval_specific_kwargs=None):
    """An earlier question with its answer, and two images."""
    if doc["image"] is None:
        return [{"role": "user", "content": [{"type": "text", "text": doc["question"]}]}]
    return [
        {
            "role": "user",
            "content": [
                {"type": "image", "url": doc["image"]},
                {"type": "text", "text": "What is this?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "A scene."}]},
        {
            "role": "user",
            "content": [
                {"type": "image", "url": doc["second"]},
                {"type": "text", "text": doc["question"]},
            ],
        },
    ]


def target(doc):
    return "red"


def choices(doc):
    return CHOICES


def results(doc, found):
    return {"words": len(found[0].split())}
