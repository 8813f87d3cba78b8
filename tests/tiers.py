"""The tiers of the suite: `pytest --tier quick`, `--tier test`, `--tier rest`.

quick: needs neither torch nor transformers. Importing them fails in this tier, so it stays true.
test: everything that protects numbers and behaviour, within five minutes on two cores.
rest: all other tests. Without `--tier`, pytest runs `test` and `rest`.

Which test is in which tier is decided here alone. Entries are the beginnings of test ids.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TIERS = ("quick", "test", "rest")

# Two LLaVAs, two kinds of positions, a prompt that sees itself, layers with states, experts.
FAMILIES = {
    *("llava", "llava_gqa", "qwen2_5_vl", "internvl"),
    *("paligemma", "qwen3_5", "qwen3_vl_moe"),
}
"""Of a test that goes through the model families: those in `test`. The others are in `rest`."""

QUICK = (
    *("tests/scores/", "tests/steering/", "tests/studies/", "tests/benchmarks/"),
    *("tests/annotation/test_cases.py", "tests/annotation/test_kept_votes.py"),
    *("tests/annotation/test_sides.py", "tests/report/test_report_data.py"),
    *("tests/pages/test_pages.py", "tests/pages/test_shading.py", "tests/pages/test_strip.py"),
    *("tests/test_choosing.py", "tests/test_cli_checks.py", "tests/test_cli_errors.py"),
    *("tests/test_cli_export.py", "tests/test_cli_look.py", "tests/test_cli_steering.py"),
    *("tests/test_compare_versions.py", "tests/test_contributing.py", "tests/test_families.py"),
    *("tests/test_fetching.py", "tests/test_heat.py", "tests/test_hosting.py"),
    *("tests/test_look.py", "tests/test_phrases.py", "tests/test_ranking.py"),
    *("tests/test_reading.py", "tests/test_regions.py", "tests/test_registry.py"),
    *("tests/test_signals.py", "tests/test_trainings.py"),
)
NOT_QUICK = (
    # These import torch or ask the embedded model.
    *("tests/benchmarks/test_own.py", "tests/scores/test_looking.py"),
    *("tests/test_cli_checks.py::test_what_is_right_", "tests/test_cli_checks.py::test_a_"),
    "tests/test_cli_checks.py::test_at_temperature_0",
    *("tests/test_cli_errors.py::test_a_plugin_", "tests/test_cli_errors.py::test_an_engine_"),
    "tests/test_cli_errors.py::test_ctrl_c_in_a_plugin",
    "tests/test_cli_errors.py::test_what_cannot_be_registered",
    "tests/test_cli_look.py::test_the_embedded_model",
    "tests/test_cli_steering.py::test_survivors_are",
    "tests/test_cli_steering.py::test_the_judge_has",
    "tests/test_cli_steering.py::test_a_search_shows",
    # These read much English, or start processes.
    *("tests/benchmarks/test_amber.py", "tests/benchmarks/test_chair.py"),
    *("tests/benchmarks/test_coco_objects.py", "tests/benchmarks/test_english.py"),
    *("tests/benchmarks/test_long_texts.py", "tests/benchmarks/test_mentions.py"),
    "tests/benchmarks/test_shapes.py",
)
REST = (
    # Processes that are killed, clusters, object stores, bad inputs, other environments.
    *("tests/runs/test_killed.py", "tests/runs/test_ray.py", "tests/runs/test_remote.py"),
    *("tests/hostile/", "tests/test_entry_points.py", "tests/test_second_engine.py"),
    *("tests/test_wheel.py", "tests/server/test_clients.py", "tests/server/test_openapi.py"),
    *("tests/runs/test_photographs.py", "tests/runs/test_real_classes.py"),
    "tests/server/test_serve_command.py",
    # Layouts of every family, compiled models, the checks of the check.
    *("tests/engines/test_layouts", "tests/engines/test_compiled.py"),
    *("tests/engines/test_embedded_loading.py", "tests/engines/test_check.py::Test"),
    *("tests/engines/test_every_decoder.py", "tests/engines/test_no_waiting.py"),
    "tests/engines/test_simulated_pruning.py",
    # What the shipped weights can do, and how they were made.
    *("tests/embedded/test_training.py", "tests/embedded/test_shipped.py::test_it_beats"),
)
IN_A_BROWSER = (
    "tests/annotation/test_annotate_page.py::test_buttons_saved_file_and_the_study",
    "tests/pages/test_look_page.py::test_each_cell_has_the_number_that_python_has",
    "tests/report/test_report_page.py::test_it_ranks_as_python_does",
    "tests/server/test_explorer_page.py::test_answers_are_the_engines",
)
"""One test per page that stays in `test`; the others that need a browser are in `rest`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--tier`."""
    parser.addoption("--tier", choices=TIERS, help="Run only the tests of this tier.")


def pytest_configure(config: pytest.Config) -> None:
    """Make imports of torch fail in the tier that does without it."""
    if config.getoption("tier") == "quick":
        sys.meta_path.insert(0, _NotInstalled())


class _NotInstalled:
    """A finder under which torch and transformers seem not to be installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name in ("torch", "transformers"):
            raise ModuleNotFoundError(f"the quick tier does without {name}", name=name)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files without a test of the tier that does without torch, nor conftests."""
    if config.getoption("tier") != "quick":
        return None
    name = collection_path.relative_to(config.rootpath).as_posix()
    if collection_path.is_dir():
        holds_quick = any(test.startswith(f"{name}/") for test in QUICK)
        return None if holds_quick or name.startswith(QUICK) else True
    if collection_path.suffix != ".py":
        return None
    return True if not name.startswith(QUICK) or name.startswith(NOT_QUICK) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not of the tier."""
    tier = config.getoption("tier")
    if tier is None:
        return
    if tier == "quick":
        chosen = [item for item in items if not item.nodeid.startswith(NOT_QUICK)]
    else:
        rest = _rest(items)
        chosen = [item for item in items if (item.nodeid in rest) == (tier == "rest")]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def _rest(items: list[pytest.Item]) -> set[str]:
    """Return the ids of the tests in `rest`."""
    import zoo

    others = {*zoo.NAMES, *zoo.EXTRA_NAMES, *zoo.MORE_NAMES} - FAMILIES
    through_families = {_function(item) for item in items if _has_family(item, FAMILIES)}
    return {
        item.nodeid
        for item in items
        if item.nodeid.startswith(REST)
        or (_function(item) in through_families and _has_family(item, others))
        or ("browser" in _fixtures(item) and not item.nodeid.startswith(IN_A_BROWSER))
    }


def _has_family(item: pytest.Item, names: set[str]) -> bool:
    """Whether a test is parametrized with one of these families."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return any(isinstance(value, str) and value in names for value in values)


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])
