"""How a broker is spoken to: plain or over TLS, and as whom."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class Login:
    """A user of Kafka. Nothing shows the password."""

    mechanism: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user})"


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection begins with; both None: nothing."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


def tls_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Trust for brokers, by one's own authorities or the system's, and a certificate to present.

    Raises:
        OSError: a file cannot be read, or is no PEM (`ssl.SSLError`).
    """
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context
