"""Reads the addresses and credentials for a cluster from the options of the source and of the sink.

Invariant: two connections with equal options are equal, so they can be the keys of kept clients (`borrowed`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict, TypeVar

from strandline.client import ClusterUnreachable, NoToken, TlsWrong
from strandline.client.blocking import loop_thread
from strandline.client.token import token_in
from strandline_analytics.topic.given import Given, TopicFailed

OPTIONS = ("bootstrap", "tlsCert", "tlsKey", "tlsCa", "tokenFile")


class TlsOptions(TypedDict):
    """The TLS and token arguments of `strandline.client`'s classes."""

    tls_cert: str
    tls_key: str
    tls_ca: str
    token: NotRequired[Callable[[], str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Addresses of a cluster, and the files of a client's certificate or token; paths are those of every worker."""

    bootstrap: str
    """One address ``host:port``, or several with commas between them."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    token_file: str = ""

    @property
    def tls(self) -> TlsOptions:
        """The TLS and token arguments for `strandline.client`'s classes."""
        options = TlsOptions(tls_cert=self.tls_cert, tls_key=self.tls_key, tls_ca=self.tls_ca)
        if self.token_file:
            options["token"] = token_in(self.token_file)
        return options


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
        token_file=given.text("tokenFile"),
    )


def unreachable(connection: Connection, error: Exception) -> TopicFailed:
    """The error when no node answers."""
    return TopicFailed(
        "bootstrap",
        f"{connection.bootstrap}: {error}",
        "give the address that `strandline up` prints, reachable from Spark's workers as well",
    )


# ---- pool
# Keeps clients of a Spark process from one task to the next, so that a micro-batch opens no connection.
#
# Spark runs many tasks one after another in one Python worker, and the reader of a stream is one process for as long as
# its query runs. All clients of a process run in the client library's own thread (`loop_thread`), so they follow
# leaders and answer pings between tasks as well.
#
# Invariant: a client is used by one task at a time; if its task failed or was cancelled, it is closed and never used
# again.


_KEPT_OF_A_KIND = 2
"""The number of clients kept per kind: a worker runs one task at a time; elsewhere several threads may read."""


class PooledClient(Protocol):
    """The methods that all clients of the library have."""

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
    """A connected client: one that an earlier task has returned, or a new one.

    Args:
        connection: the connection of the client.
        kind: a key that is equal for clients with equal settings.
        make: makes a client that is not started.

    Raises:
        TopicFailed: no node answers, or an option of the connection is wrong.
    """
    key = (connection, kind)
    with _lock:
        found = _idle.get(key)
        kept = found.pop() if found else None
    # All clients of a kind were made by the same function.
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
    """Close all kept clients, for a process that outlives the clusters that it read from."""
    with _lock:
        left = [client for clients in _idle.values() for client in clients]
        _idle.clear()
    for client in left:
        _close(client)


def _started(connection: Connection, make: Callable[[], C]) -> C:
    async def start() -> C:
        # The client is also made there: it belongs to the loop in which it is made.
        client = make()
        await client.start()
        return client

    try:
        return loop_thread().run(start)
    except ClusterUnreachable as error:
        raise unreachable(connection, error) from error
    except TlsWrong as error:
        remedy = "give tlsCert, tlsKey and tlsCa of a client, or tlsCa and tokenFile"
        raise TopicFailed("tokenFile" if connection.token_file else "tlsCert", str(error), remedy) from error
    except NoToken as error:
        raise TopicFailed("tokenFile", str(error), "give a file with a token that every worker can read") from error
    except ValueError as error:
        raise TopicFailed("bootstrap", str(error), "give host:port of a process of the cluster") from error


def _close(client: PooledClient) -> None:
    # The failure was reported by the call that met it, and a process that is ending no longer has a loop.
    with suppress(RuntimeError):
        loop_thread().run(client.close)


os.register_at_fork(after_in_child=_idle.clear)
