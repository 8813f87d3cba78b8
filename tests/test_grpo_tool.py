"""`make grpo`: its table by hand, and the one in docs/trl.md."""

from dataclasses import asdict

import pytest
from documents import ROOT, read

from tools.grpo import MEASURED, REWARDS, TASKS, Setting
from tools.grpo_table import TITLES, about, table
from tools.reproduce import update


def result(reward, quality, **others):
    values = {name: others.get(name, [0.5] * 4) for name in MEASURED} | {"quality": quality}
    return {
        "task": "scenes-vqa",
        "reward": reward,
        "values": values,
        "made_with": asdict(Setting()),
    }


@pytest.fixture
def results():
    return [
        result("before", [0.0, 0.5, 0.0, 0.5], tokens=[4.0] * 4, lookback=[-1.0] * 4),
        result("lookback", [0.5, 1.0, 0.5, 1.0], tokens=[3.0] * 4, lookback=[-0.5] * 4),
        result(
            "quality", [0.0, 0.0, 0.0, 0.0], tokens=[5.0] * 4, lookback=[float("nan"), *[-2.0] * 3]
        ),
        result("mean_log_prob", [0.5, 0.0, 0.0, 0.5], distinct=[0.25] * 4, lookback=[-1.0] * 4),
    ]


def test_changes_are_paired_and_told(results):
    text = table(results)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:6]]
    assert [row[2] for row in rows] == ["25.0", "75.0", "0.0", "25.0"]
    assert rows[0][3] == ""
    assert rows[1][3] == "+50.0 [50.0, 50.0]"  # each scene by as much: no doubt
    assert rows[2][3].startswith("-25.0 [-50.0, ")
    assert rows[3][3].startswith("+0.0 [")
    assert [row[5] for row in rows] == ["4.0", "3.0", "5.0", "0.5"]
    assert rows[2][9] == "-2.00"  # scenes without an answer are left out
    assert "quality rose by LookBack, frozen model; did not clearly change by" in text
    assert "quality did not clearly raise it either" in text
    assert "3 trainings 1 made answers to one scene more alike, 2 made them shorter, and 1" in text


def test_where_the_truth_helps_the_table_says_no_more(results):
    results[2]["values"]["quality"] = [1.0] * 4
    assert "either" not in table(results)


def test_the_page_gets_the_table_between_its_marks(results, tmp_path):
    page = tmp_path / "trl.md"
    page.write_text("Before.\n<!-- grpo -->\nold\n<!-- /grpo -->\nAfter.\n", encoding="utf-8")
    (tmp_path / "grpo.md").write_text(table(results), encoding="utf-8")
    update(page, tmp_path, ["grpo"])
    found = f"Before.\n<!-- grpo -->\n{table(results)}<!-- /grpo -->\nAfter.\n"
    assert page.read_text(encoding="utf-8") == found
    assert not (tmp_path / "trl").exists()


def test_the_page_shows_every_reward_of_the_command():
    page = read(ROOT / "docs" / "trl.md")
    rows = {reward: page.count(f"| {TITLES[reward]} |") for reward in REWARDS}
    assert len(set(rows.values())) == 1, rows
    assert 1 <= rows["before"] <= len(TASKS)
    assert about(asdict(Setting())) in page
