"""Whether what a text says of a scene is true: whole mentions and relations, not single facts."""

from lookback.scenes.questions import RELATIONS


def holds(mention, things):
    """Whether all that is said of a mention is true together of as many things as it counts."""
    those = meant(mention, things)
    if any(getattr(t, tag) in values for t in those for tag, values in mention.denied.items()):
        return False
    if mention.negated:
        return not those
    return len(those) == mention.count if mention.exact else len(those) >= (mention.count or 1)


def relation_holds(relation, things):
    """Whether it is true of things that fit the two mentions."""
    things = list(things)
    pairs = [
        (a, b)
        for a in meant(relation.first, things)
        for b in meant(relation.second, things)
        if a is not b
    ]
    return any(RELATIONS[relation.name](a, b) for a, b in pairs) != relation.denied


def meant(mention, things):
    """The things of which all that is said of the mention is true."""
    return [
        t
        for t in things
        if mention.category in (None, t.category)
        and all(
            getattr(t, tag) == value for tag, values in mention.said.items() for value in values
        )
    ]
