"""What `--ray` says before a cluster is asked, and what actors are told; none is started here."""

import os
import socket
import sys

import pytest

from lookback.runs import ray_executor
from lookback.runs.layout import RunError
from lookback.runs.plan import Plan
from lookback.runs.ray_executor import Actor, Cluster, connect

RUN = ("run", "--benchmark", "scenes-vqa", "--limit", 2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cpus": 0}, "--ray-cpus 0: must be at least 1"),
        ({"gpus": -1.0}, "--ray-gpus -1.0: must be at least 0"),
        ({"gpus": float("nan")}, "--ray-gpus nan: must be at least 0"),
        ({"address": "ray://host:1"}, "Ray's client is not supported"),
    ],
)
def test_clusters_that_cannot_be(settings, said):
    with pytest.raises(RunError, match=said):
        Cluster(**settings)


def test_without_ray_it_says_how_to_get_it(command, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = command(*RUN, "--out", tmp_path / "run", "--ray")
    assert code == 1
    assert err.startswith("lookback: --ray needs Ray, which cannot be imported")
    assert err.endswith("pip install 'lookback-vlm[ray]'\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--ray-cpus", 2), "it goes with --ray"), (("--ray", "--dry-run"), "in this process")],
)
def test_options_that_do_not_go_together(command, tmp_path, options, said):
    code, _, err = command(*RUN, "--out", tmp_path / "run", *options)
    assert code == 2
    assert said in err


class NoRay:
    """Ray that must not be asked."""

    def is_initialized(self):
        return False


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense", "write HOST:PORT, auto or local"),
        ("host:", "write HOST:PORT"),
        ("127.0.0.1:99999", "no Ray cluster at"),
    ],
)
def test_an_address_without_a_cluster_is_said_at_once(address, said, monkeypatch):
    with pytest.raises(RunError, match=said):
        connect(NoRay(), Cluster(address), print)
    monkeypatch.setenv("RAY_ADDRESS", address)  # what `--ray` alone takes
    with pytest.raises(RunError, match=said):
        connect(NoRay(), Cluster(), print)


def test_a_port_where_nobody_listens():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]  # kept, so that nobody else listens there
        with pytest.raises(RunError, match=f"no Ray cluster at '127.0.0.1:{port}'"):
            connect(NoRay(), Cluster(f"127.0.0.1:{port}"), print)


def test_where_none_is_found_one_is_started_and_said(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    asked, said = [], []

    class Ray(NoRay):
        def init(self, address, **settings):
            asked.append(address)
            if address == "auto":
                raise ConnectionError("none")

    assert connect(Ray(), Cluster(), said.append)
    assert asked == ["auto", "local"]
    assert said == ["no Ray cluster was found (RAY_ADDRESS, --ray ADDRESS): one is started here"]
    asked.clear()
    assert connect(Ray(), Cluster("local"), said.append)
    assert (asked, len(said)) == (["local"], 1)


def test_actors_have_our_variables_but_no_secrets(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOKBACK_PLUGINS", os.pathsep.join(["a/plugin.py", "module"]))
    monkeypatch.setenv("LOOKBACK_ALLOW_OUTSIDE", "1")
    monkeypatch.setenv("LOOKBACK_JUDGE_KEY", "secret")
    monkeypatch.setenv("HF_HOME", "/models")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "there")
    found = ray_executor.actor_environment(3)
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["LOOKBACK_PLUGINS"] == os.pathsep.join([str(tmp_path / "a/plugin.py"), "module"])
    assert (found["LOOKBACK_ALLOW_OUTSIDE"], found["HF_HOME"]) == ("1", "/models")
    assert found["PYTHONPATH"].endswith(os.pathsep + str(tmp_path / "there"))
    assert "secret" not in found.values()


def test_an_actor_of_another_version_refuses(tmp_path):
    pytest.importorskip("ray")
    found = Actor(Plan("scenes-vqa"), str(tmp_path / "nowhere"), "0.0.1").load()
    assert isinstance(found, RunError)
    assert "and this machine 0.0.1: install the same everywhere" in str(found)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "The actor died unexpectedly before finishing this task.\n\tip: 10.0.0.2\nThe actor is "
            "dead because its node has died. Node Id: ab. Some common causes include: (1) x",
            "The actor is dead because its node has died. Node Id: ab",
        ),
        (
            "The actor died because of an error raised in its creation task, ray::Actor()\n"
            "  File x\nModuleNotFoundError: No module named 'lookback'",
            "ModuleNotFoundError: No module named 'lookback'",
        ),
        ("", "Exception"),
    ],
)
def test_why_an_actor_is_gone_is_a_line(said, reason):
    assert ray_executor.death_reason(Exception(said)) == reason
