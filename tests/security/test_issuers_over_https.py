"""Keys that are asked for by https: what is taken, and what a hostile or broken issuer can do."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import CLUSTER, Certificates
from issued_tokens import TokenIssuer
from structlog.testing import capture_logs

from strandline.cli.local.authority import new_authority
from strandline.core.errors import Refused
from strandline.rpc import token_issuers
from strandline.rpc.status import KEY_UNKNOWN
from strandline.rpc.token_issuers import MOST_BYTES, Issuer, KeysAway, read_keys
from strandline.rpc.tokens import Tokens

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def _served(tmp_path: Path, answer: Answer) -> Iterator[str]:
    """A server whose GETs are answered so; gives the URL of its keys."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answered(answer, self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    files = Certificates.at(tmp_path).files("replica/1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)  # type: ignore[arg-type]  # paths
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/keys?tenant=a"
    finally:
        server.shutdown()
        server.server_close()


def _answered(answer: Answer, request: BaseHTTPRequestHandler) -> None:
    """The caller may have gone."""
    try:
        answer(request)
    except OSError:
        return


def _content(content: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)

    return answer


def _entry(tmp_path: Path, issuer: TokenIssuer, url: str, ca: Path | None = None) -> Issuer:
    return issuer.entry(jwks=url, jwks_ca=str(ca or tmp_path / "replica-1" / "ca.crt"))


def test_keys_come_from_a_server_whose_authority_is_named(tmp_path: Path) -> None:
    """With the path and the query of the setting; from a server of another authority nothing is taken."""
    issuer, paths = TokenIssuer(tmp_path), []

    def answer(request: BaseHTTPRequestHandler) -> None:
        paths.append(request.path)
        _content(issuer.jwks.read_bytes())(request)

    (tmp_path / "other.crt").write_bytes(new_authority(CLUSTER, 1).pem)
    with _served(tmp_path, answer) as url:
        found = read_keys(_entry(tmp_path, issuer, url))
        for ca in (tmp_path / "other.crt", None):
            entry = _entry(tmp_path, issuer, url, ca) if ca else issuer.entry(jwks=url)
            with pytest.raises(KeysAway, match=r"no answer \(SSLCertVerificationError\)"):
                read_keys(entry)

    assert set(found.keys) == {("k1", "ES256")}
    assert paths == ["/keys?tenant=a"]


def _drip(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while not threading.Event().wait(0.05):
        request.wfile.write(b" ")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_content(b" " * (MOST_BYTES + 1)), f"larger than {MOST_BYTES} bytes"),
        (_content(b" " * 50_000_000), f"larger than {MOST_BYTES} bytes"),
        (_content(b"", 302, Location="https://127.0.0.1:1/"), "HTTP status 302"),
        (_content(b"", 500), "HTTP status 500"),
        (_content(b"<html>"), "not a set of keys"),
        (lambda request: request.wfile.write(b"no HTTP\r\n\r\n"), r"no answer \(BadStatusLine\)"),
        (lambda request: request.connection.shutdown(2), "no answer"),
        (_drip, "takes longer than 0.5 s"),
        (lambda request: threading.Event().wait(1.0), r"no answer \(TimeoutError\)"),
    ],
    ids=["large", "huge", "redirect", "error", "page", "no HTTP", "hangs up", "drips", "hangs"],
)
def test_what_is_no_set_of_keys_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    """In bounded time and memory, and without being sent elsewhere."""
    monkeypatch.setattr(token_issuers, "FETCH_S", 0.5)
    with _served(tmp_path, answer) as url, pytest.raises(KeysAway, match=said):
        read_keys(_entry(tmp_path, TokenIssuer(tmp_path), url))


async def test_a_process_starts_while_an_issuer_is_away(tmp_path: Path) -> None:
    """It says so, refuses the issuer's tokens by a rule that may pass, and believes them once there are keys."""
    issuer, is_up = TokenIssuer(tmp_path), threading.Event()
    with _served(
        tmp_path, lambda request: _content(issuer.jwks.read_bytes(), 200 if is_up.is_set() else 503)(request)
    ) as url:
        tokens = Tokens((_entry(tmp_path, issuer, url),), CLUSTER)
        with capture_logs() as lines:
            await tokens.start()
        with pytest.raises(Refused) as caught:
            tokens.verify(issuer.token())
        is_up.set()
        await tokens._keys[issuer.issuer].refresh()

    assert lines[0]["why"] == "HTTP status 503"
    assert caught.value.refusal.rule == KEY_UNKNOWN
    assert tokens.verify(issuer.token()).caller.principal == "login:alice"
