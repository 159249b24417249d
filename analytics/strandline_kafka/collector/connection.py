"""One connection to a broker: questions and answers, one at a time.

Invariant: every wait has a deadline, and an answer is at most `MOST_BYTES` long. After anything but an answer the
connection is closed, because the next bytes on it might be the missing answer.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from strandline import __version__
from strandline_kafka.collector import requests
from strandline_kafka.collector.answers import correlation_of, read_authenticated, read_handshake, read_versions
from strandline_kafka.metadata.wire import Unreadable

# The security of connections to brokers: plain or TLS, and the user.

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Login:
    """A user of Kafka. The password is never shown."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user})"


@dataclass(frozen=True, slots=True)
class Security:
    """The start of a connection: TLS and login, each None if unused."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


def tls_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """The TLS context: own or system authorities to trust, and a certificate to present.

    Raises:
        OSError: a file cannot be read, or is not PEM (`ssl.SSLError`).
    """
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


# ----

# ---- refusals
# Explains in one line why a broker cannot be asked, with the remedy.
#
# Invariant: bytes from a broker are quoted at most in part, and no text contains a password.

_TLS_ALERT = b"\x15\x03"
_QUOTED = 200
_UNKNOWN_MECHANISM = 33


class Unreachable(Exception):
    """No broker answers at an address; it may come back later."""


class Closed(Unreachable):
    """The broker closed the connection instead of answering."""


class Refused(Exception):
    """A broker refused, and will refuse the same question again."""


def not_connected(address: str, error: Exception, security: Security) -> Unreachable | Refused:
    """A connection that could not be opened."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(
            f"{address}: the broker's certificate is not trusted: {error.verify_message}; name its authority with "
            "--tls-ca, and the broker by a name that is in its certificate"
        )
    if isinstance(error, ssl.SSLError | ConnectionResetError) and security.tls is not None:
        return Refused(
            f"{address}: no TLS could be agreed on ({_said(error)}); if the listener is plain, leave --tls out, and if "
            "it wants a certificate, give --tls-cert and --tls-key"
        )
    if isinstance(error, TimeoutError):
        return Unreachable(f"{address}: no connection in time; give the address of a broker's listener for clients")
    said = "no process listens there" if isinstance(error, ConnectionRefusedError) else _said(error)
    return Unreachable(f"{address}: {said}; give the address of a broker's listener for clients")


def closed_at_once(address: str, security: Security) -> Refused:
    """A listener that hung up on the first question."""
    lacks = [] if security.tls else ["--tls, if it speaks TLS"]
    lacks += [] if security.login else ["--sasl, if it wants a login"]
    remedy = " and ".join(lacks) or "the address of a listener for clients, not of one for controllers"
    return Refused(f"{address}: the listener closed the connection on the first question; give {remedy}")


def no_answer_of_kafka(address: str, begin: bytes) -> Refused:
    """First bytes that are not a frame of Kafka."""
    if begin.startswith(_TLS_ALERT):
        return Refused(f"{address}: the listener speaks TLS; give --tls, and --tls-ca for an authority of your own")
    return Refused(
        f"{address}: what answers there is no listener of Kafka (it begins with {begin[:8]!r}); give the address of a "
        "broker's listener for clients"
    )


def too_old(address: str) -> Refused:
    """A broker that does not know the first question."""
    return Refused(f"{address}: the broker is older than Apache Kafka 2.4; this reads 3.3 and later")


def no_such_mechanism(address: str, mechanism: str, error: int, offered: tuple[str, ...]) -> Refused:
    """A login that the listener does not know."""
    if error != _UNKNOWN_MECHANISM:
        return Refused(f"{address}: the listener takes no login now (Kafka's error {error}); leave --sasl out if so")
    several = ", ".join(offered)[:_QUOTED] or "none"
    return Refused(f"{address}: the listener has no {mechanism}; --sasl must be one of those that it has: {several}")


def login_refused(address: str, user: str, said: str) -> Refused:
    """A login that failed."""
    because = f" ({said[:_QUOTED]})" if said else ""
    return Refused(f"{address}: the login of {user!r} was refused{because}; check --user, --password-file and --sasl")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


OPEN_S = 10.0
"""Time to connect and log in."""
ANSWER_S = 10.0
"""Time for one answer. A slower broker counts as unreachable."""
MOST_BYTES = 64 << 20
_MOST_OF_FIRST = 1 << 20
"""The largest first answer: it is a table of versions, so a larger one is not from Kafka."""


class _Exchange(Protocol):
    """A mechanism of SASL, message by message."""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """The next message after the broker's; None if nothing more is to be sent."""
        ...


class Connection:
    """An open connection, created by `open_connection`."""

    def __init__(
        self, address: str, security: Security, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address, self.security = address, security
        self.offered: requests.Offered = {}
        self._reader, self._writer = reader, writer
        self._correlation = 0

    async def ask(self, api: requests.Api, body: bytes, *, most_bytes: int = MOST_BYTES) -> bytes:
        """Ask one question. Returns the frame of its answer.

        Raises:
            Unreachable: no answer came, or none in time.
            Refused: the bytes received are not an answer of Kafka.
        """
        self._correlation += 1
        self._writer.write(requests.framed(api, self._correlation, body))
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._writer.drain()
                (size,) = struct.unpack(">i", begin := await self._reader.readexactly(4))
                if not 4 <= size <= most_bytes:
                    raise no_answer_of_kafka(self.address, begin)
                frame = await self._reader.readexactly(size)
            if correlation_of(frame) != self._correlation:
                raise no_answer_of_kafka(self.address, begin)
        except asyncio.IncompleteReadError:
            self.close()
            raise Closed(f"{self.address}: the broker closed the connection") from None
        except (TimeoutError, OSError) as error:
            self.close()
            raise Unreachable(f"{self.address}: no answer to {api.name}: {str(error) or 'none in time'}") from error
        except BaseException:
            self.close()
            raise
        return frame

    def close(self) -> None:
        """Close it, without waiting for the broker."""
        with suppress(OSError, RuntimeError):
            self._writer.close()


async def open_connection(host: str, port: int, security: Security) -> Connection:
    """Connect, learn the broker's versions, log in.

    Raises:
        Unreachable: nothing answers at that address, or not in time.
        Refused: the server cannot be asked; the text has the remedy.
    """
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(OPEN_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=security.tls)
    except (OSError, TimeoutError) as error:
        raise not_connected(address, error, security) from error
    connection = Connection(address, security, reader, writer)
    try:
        await _begin(connection, security)
    except BaseException:
        connection.close()
        raise
    return connection


async def _begin(connection: Connection, security: Security) -> None:
    address = connection.address
    try:
        frame = await connection.ask(
            requests.API_VERSIONS, requests.api_versions(__version__), most_bytes=_MOST_OF_FIRST
        )
    except Closed as error:
        raise closed_at_once(address, security) from error
    try:
        offered = read_versions(frame)
        if offered is None:
            raise too_old(address)
        if security.login is not None:
            await _log_in(connection, security.login)
    except Unreadable as error:
        raise Refused(f"{address}: {error}") from error
    if lack := requests.lacking(offered):
        raise Refused(f"{address}: {lack}")
    connection.offered = offered


async def _log_in(connection: Connection, login: Login) -> None:
    error, mechanisms = read_handshake(
        await connection.ask(requests.SASL_HANDSHAKE, requests.sasl_handshake(login.mechanism))
    )
    if error:
        raise no_such_mechanism(connection.address, login.mechanism, error, mechanisms)
    exchange = _exchange(login)
    answer: bytes | None = None
    while True:
        try:
            step = await exchange.step(answer)
        except (ValueError, KeyError, AssertionError) as wrong:
            raise login_refused(connection.address, login.user, f"the broker's proof: {wrong}") from wrong
        if step is None:
            return
        try:
            frame = await connection.ask(requests.SASL_AUTHENTICATE, requests.sasl_authenticate(step[0]))
        except Closed as closed:
            raise login_refused(connection.address, login.user, str(closed)) from closed
        said = read_authenticated(frame)
        if said.error:
            raise login_refused(connection.address, login.user, said.message)
        answer = said.token


def _exchange(login: Login) -> _Exchange:
    """The messages of a mechanism, by aiokafka, which is used for record batches anyway: no cryptography of our own."""
    from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator

    loop = asyncio.get_running_loop()
    known = {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    if login.mechanism == "PLAIN":
        plain: _Exchange = SaslPlainAuthenticator(loop=loop, **known)
        return plain
    scram: _Exchange = ScramAuthenticator(loop=loop, sasl_mechanism=login.mechanism, **known)
    return scram
