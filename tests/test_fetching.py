"""Whom a URL may reach, for how long and for how much; on servers that are not kind."""

import itertools
import socket
import ssl
import threading
from datetime import datetime
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from lookback.io import images, network
from lookback.io.fetch import FetchError
from lookback.io.images import fetch, load_image
from lookback.io.limits import LimitError
from lookback.io.network import is_public

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("LOOKBACK_FETCH", "http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Server:
    """Says what it is told to whoever connects, and keeps what was asked.

    Attributes:
        replies: one per connection, the last one again and again: bytes, or an iterator of bytes.
        asked: the head of each request.
        end: set when the test is over; a reply that never ends looks at it.
        tls: the context of its TLS, if it speaks that; names: those that clients asked it by.
    """

    def __init__(self, host="127.0.0.1"):
        self.replies, self.asked, self.end = [], [], threading.Event()
        self.tls, self.names = None, []
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://{host}:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        for number in itertools.count():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            reply = self.replies[min(number, len(self.replies) - 1)]
            threading.Thread(target=self._answer, args=(connection, reply), daemon=True).start()

    def _answer(self, connection, reply):
        with connection:
            try:
                if self.tls is not None:
                    connection = self.tls.wrap_socket(connection, server_side=True)
                self.asked.append(self._head(connection))
                for piece in [reply] if isinstance(reply, bytes) else reply:
                    connection.sendall(piece)
            except OSError:  # nobody listens any more
                pass

    def _head(self, connection):
        head = b""
        while b"\r\n\r\n" not in head and (more := connection.recv(4096)):
            head += more
        return head.decode()

    def wait(self):
        """A reply that says nothing until the test is over."""
        self.end.wait()
        yield b""

    def for_ever(self, first, piece):
        yield first
        while not self.end.is_set():
            yield piece

    def close(self):
        self.end.set()
        self.listener.close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


def body(data, more=b""):
    return OK + b"Content-Length: %d\r\n" % len(data) + more + b"\r\n" + data


def redirect(to, status=302):
    return f"HTTP/1.1 {status} Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.fixture
def fast_clock(monkeypatch):
    """A clock that goes a second further each time somebody looks."""
    seconds = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(network, "time", clock)


def test_what_is_asked_and_given(server):
    server.replies = [body(b"hello")]
    assert fetch(f"{server.url}/a b/ü.png?x=1&y= 2#part") == b"hello"
    first, *rest = server.asked[0].split("\r\n")
    assert first == "GET /a%20b/%C3%BC.png?x=1&y=%202 HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in rest
    assert "Connection: close" in rest
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    for reply in (OK + chunked, OK + b"\r\nabcde"):  # in pieces; until the connection ends
        server.replies = [reply]
        assert fetch(server.url) == b"abcde"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server, status):
    server.replies = [redirect("/b", status), redirect(f"{server.url}/c"), body(b"there")]
    assert fetch(f"{server.url}/a") == b"there"
    assert [head.split()[1] for head in server.asked] == ["/a", "/b", "/c"]


def test_the_body_of_a_redirect_is_not_read(server):
    head = b"HTTP/1.1 302 Found\r\nLocation: /b\r\n\r\n"
    server.replies = [server.for_ever(head, bytes(2**16)), body(b"there")]
    assert fetch(server.url) == b"there"


def test_redirects_in_a_circle_end(server):
    server.replies = [redirect("/again")]
    with pytest.raises(FetchError, match="more than 5 redirects"):
        fetch(server.url)
    assert len(server.asked) == 6


@pytest.mark.parametrize("to", ["ftp://127.0.0.1/a", "file:///etc/passwd", "gopher://a/"])
def test_a_redirect_is_checked_like_the_first_url(server, to):
    server.replies = [redirect(to)]
    with pytest.raises(FetchError, match="only http and https"):
        fetch(server.url)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        OK,
        OK + b"X-Slow: ",
        OK + b"\r\n",
        OK + b"Content-Length: 9999999\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5",
        b"HTTP/1.1 100 Continue\r\n",
    ],
)
def test_the_deadline_is_for_everything(server, fast_clock, head):
    """Bytes come all the time, one by one, and never an end: no single read is late.

    If one is, on a busy machine, the error is the same.
    """
    server.replies = [server.for_ever(head, b"5")]
    said = r"takes longer, and the limit is 30 seconds: LOOKBACK_MAX_FETCH_SECONDS=NUMBER"
    endless = "line|header"  # a line without an end may be too long before it is too late
    with pytest.raises((LimitError, FetchError), match=f"{said}|{endless}"):
        fetch(server.url)


def test_dripping_bodies_end_at_the_deadline(server, fast_clock):
    server.replies = [server.for_ever(OK + b"\r\n", b"x")]
    with pytest.raises(LimitError, match="takes longer"):
        fetch(server.url)


def test_redirects_share_one_deadline(server, monkeypatch):
    seconds = itertools.count(0, 4)  # each of six connections alone would be in time
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(network, "time", clock)
    server.replies = [redirect("/b"), redirect("/c"), redirect("/d"), body(b"there")]
    with pytest.raises(LimitError, match="takes longer"):
        fetch(server.url)


def test_a_server_that_says_nothing(server, monkeypatch):
    """It never will; on a slow machine the time is over earlier on the way, with the same error."""
    server.replies = [server.wait(), server.wait()]
    with pytest.raises(FetchError, match=r"takes longer than 0\.1 s"):
        fetch(server.url, seconds=0.1)
    monkeypatch.setenv("LOOKBACK_MAX_FETCH_SECONDS", "1")
    with pytest.raises(LimitError, match="limit is 1 seconds"):
        fetch(server.url)


def test_a_lookup_that_hangs_is_left_behind(monkeypatch):
    """It hangs until the test is over: any limit of time ends it."""
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [end.wait()][1:])
    try:
        with pytest.raises(FetchError, match="takes longer"):
            fetch("http://example.org/", seconds=0.05)
    finally:
        end.set()


def test_the_size_is_limited_by_what_is_said_and_by_what_comes(server, monkeypatch):
    server.replies = [OK + b"Content-Length: 99999999999\r\n\r\n"]
    with pytest.raises(LimitError, match=r"MiB, and the limit is 100 MiB: LOOKBACK_MAX_IMAGE_MIB"):
        fetch(server.url)
    monkeypatch.setenv("LOOKBACK_MAX_IMAGE_MIB", "1")
    for head in (b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        piece = bytes(2**16) if head == b"\r\n" else b"10000\r\n" + bytes(2**16) + b"\r\n"
        server.replies = [server.for_ever(OK + head, piece)]
        with pytest.raises(LimitError, match="the limit is 1 MiB"):
            fetch(server.url)
    server.replies = [body(b"12345")]
    assert fetch(server.url, most=5) == b"12345"
    with pytest.raises(FetchError, match="more than the 4 bytes"):
        fetch(server.url, most=4)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"\r\n\r\n",
        b"hello\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 404 Not \x1b[31mFound\r\n\r\n",
        OK + b"a: b\r\n" * 50_000 + b"\r\n",
        OK + b"a" * 100_000 + b"\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        OK + b"Content-Length: 10\r\n\r\nabc",
        redirect("http://[::1"),
        redirect("http://a:port/"),
    ],
)
def test_broken_replies_are_one_line(server, reply):
    server.replies = [reply]
    with pytest.raises(FetchError) as error:
        fetch(server.url)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///a.png",
        "http://a:99999/",
        "http://127.0.0.1:0/",
        "http://a:b/",
        "http://[::1/",
        "http://a b/",
        "http://a\tb\n/",
        "http://127.0.0.1:1/\x00",
        "http://" + "a" * 5000 + "/",
        "http://..../",
        "http://\udc80/",
        "http://ａ％/",
        "https://127.0.0.1:1/",
    ],
)
def test_broken_urls_are_one_line(url):
    with pytest.raises(FetchError) as error:
        load_image(url)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


def test_a_password_is_not_shown(server):
    url = server.url.replace("://", "://me:secret@")
    with pytest.raises(FetchError, match="a password in it") as error:
        fetch(url)
    assert "secret" not in str(error.value)


NOT_PUBLIC = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("::", "::1", "fe80::1", "fe80::1%1", "fc00::1", "fd12::1", "fec0::1", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
    *("192.0.0.8", "192.0.0.9", "192.0.0.255", "192.31.196.1", "192.52.193.1", "192.88.99.1"),
    *("192.175.48.1", "0.1.2.3", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "5f00::1"),
    *("100:0:0:1::1", "2001:1::1", "2001:20::1", "2a00::5efe:7f00:1", "2a00::200:5efe:808:808"),
    *("2002:7f00:1::", "2002:808:808::", "2001:0:1::1", "2001:db8::1", "100::1", "4000::1"),
)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


PUBLIC = (
    *("8.8.8.8", "93.184.216.34", "192.0.1.1", "192.88.98.1", "192.88.100.1", "223.255.255.255"),
    *("2606:4700::1111", "2a00::1", "2001:200::1", "2003::1", "3ffe::1", "2a00::5efe"),
)


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_that_are_public(address):
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_never_public(ip):
    for inside in (f"::ffff:{ip}", f"::{ip}", f"64:ff9b::{ip}", f"2002:{int(ip) >> 16:x}::"):
        assert not is_public(inside)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "0", "[::1]", "[::ffff:7f00:1]"],
)
def test_the_policy_public_refuses_this_machine_in_any_spelling(server, host):
    server.replies = [body(b"secret")]
    with pytest.raises(FetchError, match=r"not a public address|is not found"):
        fetch(f"http://{host}:{server.port}/", "public")
    assert server.asked == []


@pytest.fixture
def names(monkeypatch):
    """Hosts with made-up addresses, of which 127.0.0.1 alone counts as public; and who asked."""
    known, asked, look_up = {}, [], socket.getaddrinfo

    def getaddrinfo(host, port, *given, **named):
        if host[0].isdecimal():
            return look_up(host, port, *given, **named)  # an address: nobody is asked
        asked.append(host)
        found = known[host].pop(0) if len(known[host]) > 1 else known[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(network, "is_public", lambda ip: ip == "127.0.0.1")
    return known, asked


def test_a_name_is_looked_up_once_and_the_connection_goes_there(server, names):
    known, asked = names
    known["rebinding.test"] = [["127.0.0.1"], ["127.0.0.2"]]  # another answer the second time
    server.replies = [body(b"public")]
    assert fetch(f"http://rebinding.test:{server.port}/", "public") == b"public"
    assert asked == ["rebinding.test"]
    assert f"Host: rebinding.test:{server.port}" in server.asked[0]


def test_one_address_that_is_not_public_is_enough(server, names):
    names[0]["mixed.test"] = [["127.0.0.1", "127.0.0.2"]]
    server.replies = [body(b"public")]
    with pytest.raises(
        FetchError, match=r"'mixed\.test' is at 127\.0\.0\.2, which is not a public"
    ):
        fetch(f"http://mixed.test:{server.port}/", "public")
    assert server.asked == []


@pytest.mark.parametrize("policy", ["open", "public"])
def test_a_redirect_to_a_private_address(server, names, policy):
    known, _ = names
    known |= {"public.test": [["127.0.0.1"]], "inner.test": [["127.0.0.2"]]}
    inner = Server("127.0.0.2")
    try:
        inner.replies = [body(b"secret")]
        server.replies = [redirect(f"http://inner.test:{inner.port}/")]
        url = f"http://public.test:{server.port}/"
        if policy == "open":
            assert fetch(url, policy) == b"secret"
        else:
            with pytest.raises(FetchError, match="not a public address"):
                fetch(url, policy)
            assert inner.asked == []
    finally:
        inner.close()


def test_the_environment_or_an_argument_names_the_policy(server, monkeypatch):
    server.replies = [body(b"not an image")]
    monkeypatch.setenv("LOOKBACK_FETCH", "public")
    for refused in (fetch, load_image, images.load_images):
        with pytest.raises(FetchError, match="not a public address"):
            refused(server.url)
    assert fetch(server.url, "open") == b"not an image"
    with pytest.raises(ValueError, match="is not an image"):
        load_image(server.url, policy="open")
    monkeypatch.setenv("LOOKBACK_FETCH", "pubic")
    with pytest.raises(ValueError, match="LOOKBACK_FETCH = 'pubic': there are open, public"):
        fetch(server.url)
    with pytest.raises(ValueError, match="policy = 'closed': there are open, public"):
        fetch(server.url, "closed")


@pytest.fixture
def certificate(tmp_path):
    """A certificate and its key for name.test, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "name.test")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(datetime(2020, 1, 1)).not_valid_after(datetime(2120, 1, 1))
    names = x509.SubjectAlternativeName([x509.DNSName("name.test")])
    made = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "certificate.pem"
    path.write_bytes(made.public_bytes(Encoding.PEM) + secret)
    return path


@pytest.mark.parametrize("host", ["name.test", "other.test"])
def test_tls_knows_the_host_by_its_name(server, names, certificate, monkeypatch, host):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.tls.load_cert_chain(certificate)
    server.tls.sni_callback = lambda _, name, __: server.names.append(name)
    names[0][host] = [["127.0.0.1"]]
    server.replies = [body(b"secure")]
    url = f"https://{host}:{server.port}/"
    if host == "name.test":
        assert fetch(url, "public") == b"secure"
    else:
        with pytest.raises(FetchError, match=r"certificate is not valid for 'other\.test'"):
            fetch(url, "public")
        assert server.asked == []
    assert server.names == [host]


def test_proxies_are_for_the_open_policy_alone(server, names, monkeypatch):
    known, asked = names
    known["far.test"] = [["127.0.0.2"]]
    monkeypatch.setenv("http_proxy", f"http://me:pa%40ss@127.0.0.1:{server.port}")
    server.replies = [body(b"by proxy")]
    assert fetch("http://far.test/a") == b"by proxy"
    assert server.asked[0].startswith("GET http://far.test/a HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic bWU6cGFAc3M=" in server.asked[0]  # me:pa@ss
    assert "far.test" not in asked  # the proxy looks it up
    with pytest.raises(FetchError, match="not a public address"):
        fetch("http://far.test/a", "public")
    assert len(server.asked) == 1
    monkeypatch.setenv("no_proxy", "far.test")
    with pytest.raises(FetchError, match="cannot fetch"):  # nobody is at 127.0.0.2, port 1
        fetch("http://far.test:1/a")


def test_https_goes_through_a_proxy_by_a_tunnel(server, names, monkeypatch):
    monkeypatch.setenv("https_proxy", f"127.0.0.1:{server.port}")
    server.replies = [b"HTTP/1.1 403 No\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]
    with pytest.raises(FetchError, match="the proxy answered 403 No"):
        fetch("https://far.test/a")
    assert server.asked[0].startswith("CONNECT far.test:443 HTTP/1.1\r\n")
    with pytest.raises(FetchError, match=r"cannot fetch 'https://far\.test/a'"):  # no TLS there
        fetch("https://far.test/a")
    with pytest.raises(FetchError, match="cannot fetch"):
        fetch("https://[2001:db8::1]/a")
    assert server.asked[2].startswith("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n")
    for proxy in ("socks5://127.0.0.1:1", "http://127.0.0.1:port", "http://", "http://[::1"):
        monkeypatch.setenv("https_proxy", proxy)
        with pytest.raises(FetchError, match="give http://HOST:PORT"):
            fetch("https://far.test/a")


def test_the_next_address_is_tried_if_one_does_not_answer(server, names):
    names[0]["two.test"] = [["127.0.0.2", "127.0.0.1"]]  # nobody listens at the first
    server.replies = [body(b"second")]
    assert fetch(f"http://two.test:{server.port}/") == b"second"
