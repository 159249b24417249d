"""Where a cluster is and how it is called, as the options of the source and of the sink name it.

Invariant: two connections with equal options are equal, so that clients are kept by them (`borrowed`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypedDict, TypeVar

from strandline.client import ClusterUnreachable, TlsWrong
from strandline.client.blocking import loop_thread
from strandline_analytics.topic.given import Given, TopicFailed

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
        """The files as the client library takes them: all three, or none."""
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


# ---- pool
# Which clients a Spark process keeps from one task to the next, so that a micro-batch opens no connection.
#
# Spark runs many tasks one after another in one Python worker, and the reader of a stream is one process for as long as
# its query runs. All clients of a process run in the thread that the client library has for that (`loop_thread`), so
# they follow leaders and answer pings between tasks as well.
#
# Invariant: a client is used by one task at a time; one whose task failed or was given up is closed and never used
# again.


_KEPT_OF_A_KIND = 2
"""A worker runs one task at a time; a process in which several threads read keeps no more than these."""


class PooledClient(Protocol):
    """What all clients of the library have."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def close(self) -> None:
        """End every connection."""
        ...


C = TypeVar("C", bound=PooledClient)

_lock = threading.Lock()
_idle: dict[Hashable, list[PooledClient]] = {}


@contextmanager
def borrowed(connection: Connection, kind: Hashable, make: Callable[[], C]) -> Iterator[C]:
    """A client that is connected: one that an earlier task has given back, or a new one.

    Args:
        connection: of the client.
        kind: equal for clients that are made with equal settings.
        make: makes a client that has not started.

    Raises:
        TopicFailed: no node answers, or an option of the connection is wrong.
    """
    key = (connection, kind)
    with _lock:
        found = _idle.get(key)
        kept = found.pop() if found else None
    # Of one kind all were made by the same function.
    client: C = _started(connection, make) if kept is None else kept  # type: ignore[assignment]
    try:
        yield client
    except BaseException:
        _close(client)
        raise
    with _lock:
        others = _idle.setdefault(key, [])
        is_kept = len(others) < _KEPT_OF_A_KIND
        if is_kept:
            others.append(client)
    if not is_kept:
        _close(client)


def close_idle() -> None:
    """Close every client that is kept, for a process that outlives the clusters that it read from."""
    with _lock:
        left = [client for clients in _idle.values() for client in clients]
        _idle.clear()
    for client in left:
        _close(client)


def _started(connection: Connection, make: Callable[[], C]) -> C:
    async def start() -> C:
        # Made there as well: a client belongs to the loop in which it is made.
        client = make()
        await client.start()
        return client

    try:
        return loop_thread().run(start)
    except ClusterUnreachable as error:
        raise unreachable(connection, error) from error
    except TlsWrong as error:
        raise TopicFailed("tlsCert", str(error), "give tlsCert, tlsKey and tlsCa of a client") from error
    except ValueError as error:
        raise TopicFailed("bootstrap", str(error), "give host:port of a process of the cluster") from error


def _close(client: PooledClient) -> None:
    # What it failed of was reported by the call that found it, and a process that ends has no loop any more.
    with suppress(RuntimeError):
        loop_thread().run(client.close)


os.register_at_fork(after_in_child=_idle.clear)
