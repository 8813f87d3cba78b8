"""All kinds of cases, and a case by its name: `kind:seed:number`, or `known:name`."""

from random import Random

from hostile import (
    addresses,
    arguments,
    benchmark_files,
    damaged_runs,
    models,
    own_files,
    pictures,
    plugins,
)
from hostile.known import KNOWN
from hostile.misbehaving import MISBEHAVING, misbehave

KINDS = {
    "arguments": arguments.make,
    "pictures": pictures.make,
    "own-files": own_files.make,
    "benchmark-files": benchmark_files.make,
    "addresses": addresses.make,
    "damaged-runs": damaged_runs.make,
    "plugins": plugins.make,
    "models": models.make,
}


def names(seed, count):
    """The names of so many cases, of every kind in turn."""
    kinds = list(KINDS)
    return [f"{kinds[n % len(kinds)]}:{seed}:{n // len(kinds)}" for n in range(count)]


def make_case(name, place):
    """A case by its name, its files made in the place."""
    kind, *rest = name.split(":")
    if kind == "known":
        return KNOWN[rest[0]](place)
    if kind == "misbehaving":
        return misbehave(MISBEHAVING[rest[0]].code, place)
    return KINDS[kind](Random(name), place)
