"""The demo as a command: what cannot work is said before the model loads."""

import pytest

from lookback.demo import __main__ as command


def test_a_page_that_cannot_be_written_is_said_at_once(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "below" / "demo.html"
    monkeypatch.setattr("sys.argv", ["demo", "--out", str(out)])
    monkeypatch.setattr(command, "look_for", lambda *_: pytest.fail("the model was loaded"))
    with pytest.raises(SystemExit, match=r"demo: .*file"):
        command.main()
