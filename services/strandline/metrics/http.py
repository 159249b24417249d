"""HTTP and HTTPS for the metrics port: one thread for each scrape, no line for each, and no traceback on stderr.

Invariant: whatever a caller does to its connection, and however long the process takes to answer, the process goes on;
a scrape that cannot be answered gets 503, and any other path than that of metrics 404.

`prometheus_client.start_http_server` answers every path, prints a traceback for a scrape that fails, and makes the TLS
handshake in the thread that accepts, where one silent caller stops all scrapes (ADR 17).
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

PATH = "/metrics"
"""The path that Prometheus asks for by default."""
HttpsContext = Callable[[], ssl.SSLContext]
_IDLE_S = 10.0
"""A connection that is silent for this long is closed."""

_log = structlog.get_logger("strandline.metrics")


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: there is a scrape every few seconds."""


class _Server(ThreadingWSGIServer):
    https: HttpsContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Runs in the thread of the scrape, and so does the handshake."""
        if self.https is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_IDLE_S)
        with self.https().wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller broke off; that is its own business."""
        _log.debug("a scrape broke off", client=str(client_address))


class _ServerOverIpv6(_Server):
    address_family = socket.AF_INET6


def serve(
    host: str, port: int, registry: CollectorRegistry, https: HttpsContext | None = None
) -> tuple[int, Callable[[], None]]:
    """Serve the registry from now on; returns the port, and what ends it.

    Raises:
        OSError: the address is taken, or is not this machine's.
    """
    server = make_server(host, port, _answering(registry), _ServerOverIpv6 if ":" in host else _Server, _Handler)
    server.https = https
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), close


def _answering(registry: CollectorRegistry) -> Callable[..., Iterable[bytes]]:
    inner: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"metrics are at {PATH}\n".encode()]
        try:
            return inner(environ, start_response)
        except Exception as error:  # noqa: BLE001 - reported to the scraper and in the log, in one line each
            _log.warning("a scrape is not answered", reason=repr(error))
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"this process does not answer now\n"]

    return answer
