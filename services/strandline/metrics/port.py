"""The metrics port of a process: Prometheus text by HTTP, with its own threads.

Invariant: the event loop only reads its figures. They are read in its thread, so that nothing changes meanwhile; the
text is made in the thread of the scrape. If the loop does not answer within `ANSWER_WITHIN_S` the scrape fails, which
is what a stuck process should look like.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import structlog
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

import strandline
from strandline.metrics.families import BUILD, Family, MetricType, Role
from strandline.metrics.figures import Figure, Spread

# ---- http
# HTTP and HTTPS for the metrics port: one thread per scrape, no log line per scrape, and no traceback on stderr.
#
# Invariant: nothing that a caller does to its connection, and no slow answer, can stop the process; a scrape that
# cannot be answered gets 503, and any path other than that of metrics 404.
#
# `prometheus_client.start_http_server` answers every path, prints a traceback for a failed scrape, and does the TLS
# handshake in the accepting thread, where one silent caller blocks all scrapes (ADR 17).

PATH = "/metrics"
"""The path that Prometheus scrapes by default."""
HttpsContext = Callable[[], ssl.SSLContext]
Allowed = Callable[[bytes | None], bool]
"""Returns whether the holder of this certificate, or a scraper without one, may see all series."""
_PEER = "strandline.peer"
_IDLE_S = 10.0
"""A connection that is silent for this long is closed."""


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def get_environ(self) -> dict[str, Any]:
        """The environment, with the caller's certificate or None."""
        shown = getattr(self.connection, "getpeercert", None)
        return {**super().get_environ(), _PEER: shown(binary_form=True) if shown is not None else None}

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because there is a scrape every few seconds."""


class _Server(ThreadingWSGIServer):
    https: HttpsContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer in the thread of the scrape, which does the handshake too."""
        if self.https is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_IDLE_S)
        with self.https().wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore that a caller broke off."""
        _log.debug("a scrape broke off", client=str(client_address))


class _ServerOverIpv6(_Server):
    address_family = socket.AF_INET6


def serve(
    host: str, port: int, registry: CollectorRegistry, https: HttpsContext | None = None, allowed: Allowed | None = None
) -> tuple[int, Callable[[], None]]:
    """Start to serve the registry; return the port, and a function that ends it.

    Raises:
        OSError: the address is taken or not local.
    """
    server = make_server(
        host, port, _answering(registry, allowed), _ServerOverIpv6 if ":" in host else _Server, _Handler
    )
    server.https = https
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), close


def _answering(registry: CollectorRegistry, allowed: Allowed | None) -> Callable[..., Iterable[bytes]]:
    inner: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"metrics are at {PATH}\n".encode()]
        if allowed is not None and not allowed(environ.get(_PEER)):
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"series name topics here: scrape with an identity that may DESCRIBE every topic\n"]
        try:
            return inner(environ, start_response)
        except Exception as error:  # noqa: BLE001 - reported to the scraper and in the log, in one line each
            _log.warning("a scrape is not answered", reason=repr(error))
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"this process does not answer now\n"]

    return answer


ANSWER_WITHIN_S = 5.0

Read = Callable[[], Iterable[Figure]]

_log = structlog.get_logger("strandline.metrics")


class MetricsPort:
    """One process's port. ``read`` runs in the event loop, ``read_aside`` in the scrape's thread: it may block."""

    def __init__(self, role: Role, read: Read, read_aside: Read = tuple) -> None:
        self._role = role
        self._read = read
        self._read_aside = read_aside
        self._close: Callable[[], None] = lambda: None

    def open(self, address: str, context: HttpsContext | None = None, allowed: Allowed | None = None) -> str | None:
        """Serve scrapes at ``host:port``; return the address with its port, or None if ``address`` is empty.

        ``context`` is called for each connection, so that new certificates are used; without it: plain HTTP.
        ``allowed`` is called for each scrape; without it every caller is allowed.

        Raises:
            OSError: the address is taken or not local.
        """
        if not address:
            return None
        host, _, port = address.rpartition(":")
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(_LoopCollector(asyncio.get_running_loop(), self._all, self._read_aside))
        bound, self._close = serve(host.strip("[]"), int(port), registry, context, allowed)
        address = f"{host}:{bound}"
        _log.info("metrics are served", address=address)
        return address

    def close(self) -> None:
        """Close the port, after a scrape under way has ended. It blocks for up to half a second."""
        close, self._close = self._close, lambda: None
        close()

    def _all(self) -> Iterator[Figure]:
        yield Figure(BUILD, 1, (strandline.__version__, self._role))
        yield from self._read()


class _LoopCollector(Collector):
    """Reads the figures of the event loop at each scrape."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Read, read_aside: Read) -> None:
        self._loop = loop
        self._read = read
        self._read_aside = read_aside

    def collect(self) -> Iterator[Metric]:
        """The metrics of one scrape."""
        return metrics_of([*self._ask(), *self._read_aside()])

    def _ask(self) -> Sequence[Figure]:
        answer: concurrent.futures.Future[Sequence[Figure]] = concurrent.futures.Future()

        def read() -> None:
            try:
                answer.set_result(tuple(self._read()))
            except Exception as error:  # noqa: BLE001 - the scraper gets the error, the service continues
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(read)
        return answer.result(ANSWER_WITHIN_S)


def metrics_of(figures: Iterable[Figure]) -> Iterator[Metric]:
    """The figures as the library's families, in order of name."""
    ordered = sorted(figures, key=lambda figure: figure.family.name)
    for _, group in groupby(ordered, key=lambda figure: figure.family.name):
        same = list(group)
        metric = _metric(same[0].family)
        for figure in same:
            _add(metric, figure)
        yield metric


def _metric(family: Family) -> Metric:
    if family.kind is MetricType.COUNTER:
        return CounterMetricFamily(family.full_name, family.help, labels=family.labels)
    if family.kind is MetricType.GAUGE:
        return GaugeMetricFamily(family.full_name, family.help, labels=family.labels)
    return HistogramMetricFamily(family.full_name, family.help, labels=family.labels)


def _add(metric: Metric, figure: Figure) -> None:
    if isinstance(figure.value, Spread):
        assert isinstance(metric, HistogramMetricFamily)
        spread = figure.value
        bounds = (*map(str, spread.bounds), "+Inf")
        metric.add_metric(figure.labels, list(zip(bounds, spread.cumulative, strict=True)), spread.total)
        return
    assert isinstance(metric, CounterMetricFamily | GaugeMetricFamily)
    metric.add_metric(figure.labels, figure.value)
