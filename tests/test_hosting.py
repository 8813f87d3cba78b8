"""Names of this machine, and who is answered under which."""

import pytest

from lookback.annotation.server import Server
from lookback.io.hosts import LOCAL, check_host, host_name, own_names


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:8000", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("fe80::a:1", "fe80::a:1"),
        ("", ""),
        (":80", ""),
    ],
)
def test_a_name_is_without_its_port(header, name):
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("LocalHost", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_whoever_listens_to_this_machine_answers_to_its_names_alone(host, address):
    assert set(own_names(host, address)) == {*LOCAL, host.lower(), address}


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1"])
def test_whoever_listens_to_others_answers_to_any_name(address):
    assert own_names("a.example", address) is None


@pytest.mark.parametrize("host", ["", " "])
def test_no_server_listens_at_an_empty_address(host):
    with pytest.raises(ValueError, match="--host"):
        check_host(host)
    with pytest.raises(ValueError, match="--host"):
        Server(None, host)
