"""The one registry: names, conflicts, laziness, plugins and other packages' entries."""

import os
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from lookback import registry as module
from lookback.registry import PluginError, Registry, load_plugin


@dataclass
class Thing:
    name: str
    origin: Any


def function_of(home, name="thing"):
    """A function as if it had been defined in another module."""
    space = {"__name__": home}
    exec(f"def {name}(): pass", space)
    return space[name]


@pytest.fixture
def things(monkeypatch, tmp_path):
    """A registry of "things" with the built-in `lazy`, whose module is in a folder on the path."""
    monkeypatch.setenv("LOOKBACK_PLUGINS", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Registry("thing", {"lazy": "lazy_things"}, lambda name, f: made.add(Thing(name, f)))
    (tmp_path / "lazy_things.py").write_text(
        "import test_registry\n\n\ndef lazy(): pass\n\n\n"
        "test_registry.MADE[-1].add(test_registry.Thing('lazy', lazy))\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "MADE", [made])
    yield made
    sys.modules.pop("lazy_things", None)
    module._points.cache_clear()


MADE: list[Registry] = []


def package(folder, name, points, group="lookback.things"):
    """An installed package, as far as its entry points go."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{key} = {value}\n" for key, value in points.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    module._points.cache_clear()


def test_an_unknown_name_lists_the_known_ones(things):
    things.add(Thing("mine", function_of("here")))
    with pytest.raises(ValueError, match="no thing named 'nope'; there are: lazy, mine"):
        things.get("nope")


def test_an_unknown_name_that_is_nearly_known_is_told(things):
    things.add(Thing("scenes-caption", function_of("here")))
    for name in ("scene-caption", "scenes_caption", "scenes-captions"):
        with pytest.raises(ValueError, match="Did you mean 'scenes-caption'"):
            things.get(name)
    for name in ("nope", 5, None, ["lazy"]):
        with pytest.raises(ValueError, match=r"there are: lazy, scenes-caption$"):
            things.get(name)


def test_a_builtin_is_imported_when_it_is_asked_for(things):
    assert things.names() == ["lazy"]
    assert "lazy_things" not in sys.modules
    assert things.get("lazy").origin.__module__ == "lazy_things"
    assert not things.own("lazy")


def test_two_things_of_one_name_are_a_conflict(things):
    things.add(Thing("mine", function_of("here")))
    with pytest.raises(ValueError, match="already a thing named 'mine'"):
        things.add(Thing("mine", function_of("elsewhere")))
    with pytest.raises(ValueError, match="already a thing named 'mine'"):
        things.add(Thing("mine", function_of("here", "another")))


def test_a_builtins_name_is_taken_before_it_is_loaded(things):
    with pytest.raises(ValueError, match="already a thing named 'lazy'"):
        things.add(Thing("lazy", function_of("here", "lazy")))
    assert things.get("lazy").origin.__module__ == "lazy_things"


def test_the_same_definition_again_takes_the_place_of_the_first(things):
    first, second = function_of("__main__"), function_of("__main__")
    things.add(Thing("mine", first))
    things.add(Thing("mine", second))
    assert things.get("mine").origin is second
    assert things.own("mine")


def test_another_packages_plain_function_is_adopted(things, tmp_path):
    (tmp_path / "other_things.py").write_text("def plain(): pass\n")
    package(tmp_path, "other", {"theirs": "other_things:plain"})
    assert things.names() == ["lazy", "theirs"]
    assert things.get("theirs").origin.__name__ == "plain"
    assert list(things.all()) == ["lazy", "theirs"]


def test_a_broken_package_is_loud_and_others_still_work(things, tmp_path):
    (tmp_path / "fine_things.py").write_text("def plain(): pass\n")
    package(tmp_path, "broken", {"bad": "no_such_module:x"})
    package(tmp_path, "fine", {"good": "fine_things:plain"})
    with pytest.warns(UserWarning, match=r"the thing 'bad' \(no_such_module:x\) cannot be loaded"):
        assert set(things.all()) == {"lazy", "good"}
    assert things.get("good").name == "good"
    with pytest.raises(PluginError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        things.get("bad")


def test_two_packages_with_one_name_are_told_apart_aloud(things, tmp_path):
    (tmp_path / "one.py").write_text("def plain(): pass\n")
    package(tmp_path, "one", {"same": "one:plain", "lazy": "one:plain"})
    package(tmp_path, "two", {"same": "two:plain"})
    with pytest.warns(UserWarning, match="is left out") as said:
        names = things.names()
    assert names == ["lazy", "same"]
    words = " ".join(str(warning.message) for warning in said)
    assert "has the name 'same' in lookback.things" in words
    assert "one:plain is left out: lookback itself has the name 'lazy'" in words


def test_plugins_of_one_name_in_two_folders_are_two(things, tmp_path, monkeypatch):
    paths = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "plugin.py")
        paths[-1].write_text(
            "import test_registry\n\n\ndef thing(): pass\n\n\n"
            f"test_registry.MADE[-1].add(test_registry.Thing('{name}', thing))\n"
        )
    monkeypatch.setenv("LOOKBACK_PLUGINS", os.pathsep.join(map(str, paths)))
    assert things.names() == ["lazy", "first", "second"]
    assert things.get("first").origin.__module__ != things.get("second").origin.__module__


def test_a_plugin_is_run_once(tmp_path):
    log = tmp_path / "log"
    plugin = tmp_path / "counting.py"
    plugin.write_text(f"open({str(log)!r}, 'a').write('run ')\n")
    for _ in range(2):
        load_plugin(str(plugin))
    assert log.read_text() == "run "


def test_a_plugin_that_failed_can_be_mended(tmp_path):
    plugin = tmp_path / "mended.py"
    plugin.write_text("1 / 0\n")
    with pytest.raises(PluginError, match=r"mended\.py failed: ZeroDivisionError"):
        load_plugin(str(plugin))
    plugin.write_text("fine = 1 + 1\n")
    load_plugin(str(plugin))


def test_what_is_no_plugin(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_plugin(str(tmp_path / "gone.py"))
    with pytest.raises(PluginError, match="No module named 'no_such_module'"):
        load_plugin("no_such_module")
