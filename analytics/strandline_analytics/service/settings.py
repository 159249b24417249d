"""The settings of the analytics server.

Invariant: settings are frozen and read once, by the code that starts the process.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.messages import Endpoint
from strandline_analytics.tables.destination import Destination

LOOPBACK = Endpoint("127.0.0.1", 0)
MOST_PAGE_ROWS = 10_000
"""The maximum number of rows of one page, whatever was requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticsSettings:
    """Settings of `strandline analytics serve`."""

    inputs: tuple[str, ...]
    """The exports to read: directories or URIs."""
    destination: Destination
    """The destination of the results of runs; the session must have what it needs."""
    bind: Endpoint = LOOPBACK
    """The address to serve; with port 0 the kernel chooses the port."""
    health_bind: str = ""
    """The address of grpc.health.v1 without TLS; empty for none."""
    metrics_bind: str = ""
    """The address of Prometheus metrics by HTTP; empty for none."""
    metrics_tls: bool = False
    """Whether metrics are served by HTTPS, only to callers with a certificate of the authority."""
    tls_cert: str = ""
    """The certificate of this process; empty for no TLS. Its identity is a client's or an administrator's."""
    tls_key: str = ""
    tls_ca: str = ""
    rules_of: str = ""
    """Bootstrap addresses of the cluster whose rules govern what clients may ask; empty: their roles do (C105)."""
    token_issuers: str = ""
    """The file of the issuers whose tokens clients may show instead of a certificate; empty for no tokens."""
    insecure: bool = False
    """Whether addresses beyond loopback may be served without TLS."""
    reflection: bool = True
    warm: bool = False
    """Whether a small input is opened, and its report made, before the first request."""
    queue_length: int = 8
    """The maximum number of questions that wait for the one that is being computed."""
    page_rows: int = 1_000
    """The number of rows of an answer whose request names no page_size."""
    most_rows: int = 100_000
    """The maximum number of rows of one question in all; a larger question needs a run."""
    kept_runs: int = 100
    """The number of ended runs that GetRun still returns."""
    poll_s: float = 2.0
    """The interval at which the input is searched for new files while a caller watches partitions."""
    watch_hours: int = 2
    """The number of newest hours that a watch is built from."""
