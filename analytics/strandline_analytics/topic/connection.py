"""Where a cluster is and how it is called, as the options of the source and of the sink name it.

Invariant: two connections with equal options are equal, so that clients are kept by them (`pool`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from strandline_analytics.topic.errors import TopicFailed
from strandline_analytics.topic.given import Given

OPTIONS = ("bootstrap", "tlsCert", "tlsKey", "tlsCa")


class TlsPaths(TypedDict):
    """What `strandline.client`'s classes take."""

    tls_cert: str
    tls_key: str
    tls_ca: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Addresses of a cluster, and the files of a client's certificate; paths count on every worker."""

    bootstrap: str
    """``host:port``, or several with commas between them."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""

    @property
    def tls(self) -> TlsPaths:
        """As the client library takes them: all three, or none."""
        return TlsPaths(tls_cert=self.tls_cert, tls_key=self.tls_key, tls_ca=self.tls_ca)


def read_connection(given: Given) -> Connection:
    """The connection that options name.

    Raises:
        TopicFailed: no address is given.
    """
    return Connection(
        bootstrap=given.required("bootstrap", "give the address of any process of the cluster, as 127.0.0.1:9092"),
        tls_cert=given.text("tlsCert"),
        tls_key=given.text("tlsKey"),
        tls_ca=given.text("tlsCa"),
    )


def unreachable(connection: Connection, error: Exception) -> TopicFailed:
    """The error when no node answers."""
    return TopicFailed(
        "bootstrap",
        f"{connection.bootstrap}: {error}",
        "give the address that `strandline up` prints, reachable from Spark's workers as well",
    )
