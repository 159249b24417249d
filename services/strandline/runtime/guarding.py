"""The settings every service shares about its ports: TLS, the plaintext exceptions, and what is refused.

Invariant: the three files of TLS are given together or not at all; nothing but loopback is served without TLS unless
the setting ``insecure`` allows it. The ports of health and metrics are exempt: they show nothing secret.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Protocol

from pydantic import Field

TlsCert = Annotated[str, Field(description="certificate of this process, PEM, read again when it changes; empty: off")]
TlsKey = Annotated[str, Field(description="the certificate's private key, PEM")]
TlsCa = Annotated[str, Field(description="certificates of the authority that others' certificates must be signed by")]
Insecure = Annotated[bool, Field(description="serve addresses beyond loopback without TLS")]
PlainAddress = Annotated[str, Field(pattern=r"^(\S+:\d{1,5})?$")]
HealthBind = Annotated[PlainAddress, Field(description="address of grpc.health.v1 without TLS; empty: none")]
MetricsTls = Annotated[
    bool, Field(description="serve metrics by HTTPS with tls_cert, to callers with a certificate of tls_ca")
]
MetricsBind = Annotated[PlainAddress, Field(description="address of Prometheus metrics by HTTP; empty: none")]


class TlsSettings(Protocol):
    """The three files, as every kind of service has them, and whether its metrics use them."""

    @property
    def metrics_tls(self) -> bool:
        """Whether the port of metrics speaks HTTPS."""
        ...

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


class GuardedSettings(TlsSettings, Protocol):
    """The files, and whether one may do without."""

    @property
    def insecure(self) -> bool:
        """Whether addresses beyond loopback may be served without TLS."""
        ...


def check_guards(settings: GuardedSettings, **addresses: str) -> None:
    """Refuse a part of TLS without the others, and an address beyond loopback without TLS.

    ``addresses`` are the ports of services by their setting's name; an empty one is not served.

    Raises:
        ValueError: naming the setting.
    """
    check_tls(settings)
    if settings.tls_cert or settings.insecure:
        return
    for name, address in addresses.items():
        if address and not is_loopback(address.rpartition(":")[0]):
            raise ValueError(
                f"{name} {address} is not loopback and TLS is off; give tls_cert, tls_key and tls_ca, or insecure "
                f"where everybody who reaches the address may read, write and administer"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``; names other than localhost are not looked up and do not count."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_tls(settings: TlsSettings) -> None:
    """Refuse a part of TLS without the others, and metrics by HTTPS without TLS.

    Raises:
        ValueError: naming what is absent.
    """
    given = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    absent = [name for name, value in given.items() if not value]
    if absent and len(absent) < len(given):
        raise ValueError(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
    if settings.metrics_tls and absent:
        raise ValueError("metrics_tls needs tls_cert, tls_key and tls_ca; give them, or set metrics_tls to false")
