"""The server: what it answers, what it refuses, and that a vote outlives kill -9."""

import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from made_cases import make_cases, make_folder
from timeouts import HANG_SECONDS

from lookback.annotation.server import MOST, Server
from lookback.annotation.votes import VoteFile, read_sqlite

JSON = {"Content-Type": "application/json"}


def ask(url, path, body, headers=JSON):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers)
    with urllib.request.urlopen(request, timeout=HANG_SECONDS) as reply:
        return json.loads(reply.read())


def refused(url, path, body, headers=JSON):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(url, path, body, headers)
    with caught.value as error:
        return error.code, json.loads(error.read())["error"]


@contextmanager
def running(votes):
    with Server(votes) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def served(tmp_path):
    with running(VoteFile(tmp_path / "votes.sqlite", make_cases())) as server:
        yield server


def test_a_rater_enters_votes_undoes_and_comes_back(served):
    first = ask(served.url, "enter", {"rater": "R1"})
    assert (first["rater"], first["set"], first["votes"]) == ("r1", 1, [])
    assert [case["case"] for case in first["cases"]] == [1, 2, 3]
    assert set(first["cases"][0]) == {"set", "case", "question", "answers", "image"}
    place = {"rater": "r1", "set": 1}
    assert ask(served.url, "vote", place | {"case": 1, "choice": "A"}) == {}
    ask(served.url, "vote", place | {"case": 2, "choice": "tie"})
    assert len(read_sqlite(served.votes.path)) == 2
    ask(served.url, "undo", place | {"case": 2})
    assert ask(served.url, "enter", {"rater": "r1"})["votes"] == [{"case": 1, "choice": "A"}]
    assert ask(served.url, "enter", {"rater": "r2"})["set"] == 2


def test_the_page_names_no_scorer(served):
    with urllib.request.urlopen(served.url) as reply:
        assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
        page = reply.read().decode()
    for secret in ("ookback", "ookBack", "ertainty", "quality", "scorer"):
        assert secret not in page


def test_what_is_refused(served):
    url, vote = served.url, {"rater": "r1", "set": 1, "case": 1, "choice": "A"}
    assert refused(url, "vote", vote) == (400, "rater 'r1' has not entered")
    ask(url, "enter", {"rater": "r1"})
    for wrong in ({"set": "1"}, {"case": True}, {"case": 9}, {"choice": "C"}, {"choice": 1}):
        assert refused(url, "vote", vote | wrong)[0] == 400, wrong
    for body in (b"", b"{", b"[1]", b"\xff", b"[" * 5000, b" " * (MOST + 1)):
        assert refused(url, "vote", body)[0] == 400
    assert refused(url, "vote", vote, JSON | {"Content-Length": "0" * 9 + "9" * 12})[0] == 400
    assert refused(url, "enter", {"rater": "a b"})[0] == 400
    assert refused(url, "other", {})[0] == 404
    # What a page of another site could send, or reach by a name of its own:
    assert refused(url, "vote", vote, {"Content-Type": "text/plain"})[0] == 400
    assert refused(url, "vote", vote, JSON | {"Host": "evil.example:80"})[0] == 403
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url + "key.json")
    with caught.value as error:
        assert error.code == 404
    assert read_sqlite(served.votes.path) == []


def test_codes_that_are_not_on_the_list(tmp_path):
    with running(VoteFile(tmp_path / "v", make_cases(), ["a"])) as server:
        code, words = refused(server.url, "enter", {"rater": "b"})
        assert (code, words[:28]) == (403, "nobody here has the code 'b'")


def test_a_rater_taken_off_the_list_votes_no_more(tmp_path):
    vote = {"rater": "b", "set": 1, "case": 1}
    with running(VoteFile(tmp_path / "v", make_cases((3,)), ["a", "b"])) as server:
        ask(server.url, "enter", {"rater": "b"})
        ask(server.url, "vote", vote | {"choice": "A"})
    with running(VoteFile(tmp_path / "v", make_cases((3,)), ["a"])) as server:
        for path in ("vote", "undo"):
            assert refused(server.url, path, vote | {"choice": "B"})[0] == 403
    assert [v.choice for v in read_sqlite(tmp_path / "v")] == ["A"]


def test_a_client_that_goes_away_leaves_no_traceback(served, capsys, monkeypatch):
    """It asks for the page and resets the connection; another breaks off amid its vote."""
    over = threading.Semaphore(0)
    shut = Server.shutdown_request
    monkeypatch.setattr(Server, "shutdown_request", lambda *a: (shut(*a), over.release()))
    vote = b"POST /vote HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"
    reset = struct.pack("ii", 1, 0)
    for sent in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", vote, b"GET"):
        with socket.create_connection(served.server_address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            client.sendall(sent)
        assert over.acquire(timeout=HANG_SECONDS)
    assert capsys.readouterr().err == ""


def test_an_error_of_the_server_itself_is_printed(served, capsys, monkeypatch):
    monkeypatch.setattr(served.votes, "enter", lambda given: 1 / 0)
    with pytest.raises(ConnectionError):
        ask(served.url, "enter", {"rater": "r1"})
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_port_that_is_taken(served):
    with pytest.raises(OSError, match="give another --port"):
        Server(served.votes, port=served.server_address[1])


def start(folder):
    command = [sys.executable, "-m", "lookback.cli", "annotate", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_a_vote_that_was_answered_outlives_kill_9(tmp_path):
    folder = make_folder(tmp_path / "cases", make_cases((400,), image=False))
    process, url = start(folder)
    answered = []

    def judge(rater):
        try:
            ask(url, "enter", {"rater": rater})
            for case in range(1, 401):
                ask(url, "vote", {"rater": rater, "set": 1, "case": case, "choice": "B"})
                answered.append((rater, case))
                if (rater, case) == ("r0", 20):
                    os.kill(process.pid, signal.SIGKILL)  # amid the other's requests
        except (OSError, ValueError, http.client.HTTPException):
            pass  # it was killed

    threads = [threading.Thread(target=judge, args=(f"r{i}",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    process.communicate()
    assert ("r0", 20) in answered
    assert ("r0", 21) not in answered
    kept = {(vote.rater, vote.case) for vote in read_sqlite(folder / "votes.sqlite")}
    assert set(answered) <= kept
    assert len(kept) <= len(answered) + 2  # no more than what was on its way
    process, url = start(folder)
    try:
        found = ask(url, "enter", {"rater": "r0"})["votes"]
        assert len(found) == sum(rater == "r0" for rater, _ in kept)
    finally:
        process.terminate()
        process.communicate()


def test_the_command(command, tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "cases", make_cases())
    code, _, err = command("annotate", tmp_path)
    assert code == 1
    assert "no cases.json in" in err
    assert command("annotate", folder, "--raters", ",")[0] == 1
    assert command("annotate", folder, "--only-set", 1)[0] == 2
    code, out, _ = command("annotate", folder, "--export", tmp_path / "page.html")
    assert (code, out.strip()) == (0, str(tmp_path / "page.html"))
    code, _, err = command("annotate", folder, "--export", tmp_path / "p", "--only-set", 3)
    assert (code, "these cases have the sets 1, 2" in err) == (1, True)
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    code, out, err = command("annotate", folder, "--port", 0)
    assert (code, out.startswith("http://127.0.0.1:")) == (0, True)
    assert "3 + 2 cases; votes go to" in err
