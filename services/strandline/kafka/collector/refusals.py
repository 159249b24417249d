"""Why a broker cannot be asked, as one line with its remedy.

Invariant: what a broker sent is quoted at most in part, and no password is in any text.
"""

from __future__ import annotations

import ssl

from strandline.kafka.collector.security import Security

_TLS_ALERT = b"\x15\x03"
_QUOTED = 200
_UNKNOWN_MECHANISM = 33


class Unreachable(Exception):
    """No broker answers at an address; it may be back later."""


class Closed(Unreachable):
    """The broker ended the connection in place of an answer."""


class Refused(Exception):
    """A broker answered, and will not answer otherwise to the same question."""


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
    said = "nobody listens there" if isinstance(error, ConnectionRefusedError) else _said(error)
    return Unreachable(f"{address}: {said}; give the address of a broker's listener for clients")


def closed_at_once(address: str, security: Security) -> Refused:
    """A listener that hung up on the first question."""
    lacks = [] if security.tls else ["--tls, if it speaks TLS"]
    lacks += [] if security.login else ["--sasl, if it wants a login"]
    remedy = " and ".join(lacks) or "the address of a listener for clients, not of one for controllers"
    return Refused(f"{address}: the listener closed the connection on the first question; give {remedy}")


def no_answer_of_kafka(address: str, begin: bytes) -> Refused:
    """First bytes that are no frame of Kafka's."""
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
