"""Decides which settings every service shares about its ports: TLS, the plaintext exceptions, and what is refused.

Invariant: the three files of TLS are given together or not at all; nothing but loopback is served without TLS unless
somebody said so in a word of its own. The ports of health and metrics are exempt: they tell nothing that is secret.
"""

from __future__ import annotations

from typing import Annotated, Protocol

from pydantic import Field

TlsCert = Annotated[str, Field(description="certificate of this process, PEM, read again when it changes; empty: off")]
TlsKey = Annotated[str, Field(description="the certificate's private key, PEM")]
TlsCa = Annotated[str, Field(description="certificates of the authority that others' certificates must be signed by")]
Insecure = Annotated[bool, Field(description="serve addresses beyond loopback without TLS")]
PlainAddress = Annotated[str, Field(pattern=r"^(\S+:\d{1,5})?$")]
HealthBind = Annotated[PlainAddress, Field(description="address of grpc.health.v1 without TLS; empty: none")]
MetricsBind = Annotated[PlainAddress, Field(description="address of Prometheus metrics by HTTP; empty: none")]


class TlsSettings(Protocol):
    """The three files, as every kind of service has them."""

    @property
    def tls_cert(self) -> str:
        """Path of the certificate, or empty."""
        ...

    @property
    def tls_key(self) -> str:
        """Path of its key, or empty."""
        ...

    @property
    def tls_ca(self) -> str:
        """Path of the authority's certificates, or empty."""
        ...


def check_tls(settings: TlsSettings) -> None:
    """Refuse a part of TLS without the others.

    Raises:
        ValueError: naming what is absent.
    """
    given = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    absent = [name for name, value in given.items() if not value]
    if absent and len(absent) < len(given):
        raise ValueError(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
