"""What can be set on the analytics server.

Invariant: settings are frozen and read once, by the code that starts the process.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.messages import Endpoint
from strandline_analytics.tables.destination import Destination

LOOPBACK = Endpoint("127.0.0.1", 0)
MOST_PAGE_ROWS = 10_000
"""Rows of one answer at most, whatever was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsSettings:
    """Settings of `strandline analytics serve`."""

    inputs: tuple[str, ...]
    """Exports: directories or URIs."""
    destination: Destination
    """Where runs write their results; the session must have what it needs."""
    bind: Endpoint = LOOPBACK
    """Address that is served; port 0: the kernel chooses."""
    health_bind: str = ""
    """Address of grpc.health.v1 without TLS; empty: none."""
    metrics_bind: str = ""
    """Address of Prometheus metrics by HTTP; empty: none."""
    metrics_tls: bool = False
    """Whether metrics are served by HTTPS, to callers with a certificate of the authority."""
    tls_cert: str = ""
    """Certificate of this process; empty: no TLS. Its identity is a client's or an administrator's."""
    tls_key: str = ""
    tls_ca: str = ""
    rules_of: str = ""
    """Bootstrap addresses of the cluster whose rules say what clients may ask; empty: each its role (C105)."""
    token_issuers: str = ""
    """File of the issuers whose tokens clients may show instead of a certificate; empty: no tokens."""
    insecure: bool = False
    """Whether addresses beyond loopback may be served without TLS."""
    reflection: bool = True
    warm: bool = False
    """Whether little input is opened, and its report made, before the first request."""
    queue_length: int = 8
    """Questions that may wait for the one that is computed."""
    page_rows: int = 1_000
    """Rows of an answer whose request names no page_size."""
    most_rows: int = 100_000
    """Rows that one question may have in all; a larger one is for a run."""
    kept_runs: int = 100
    """Ended runs that GetRun still returns."""
    poll_s: float = 2.0
    """How often the input is looked at for new files while a caller watches partitions."""
    watch_hours: int = 2
    """How many of the newest hours a watch is built from."""
