"""Runs the console: one socket, one server, one watcher of the cluster, all owned here and ended together.

Invariant: the port is bound before anything is said; a stop ends open streams first and takes no longer than its
deadline; the end of any part by an exception is the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

import structlog
import uvicorn

from strandline.console.pages import Site
from strandline.console.settings import ConsoleSettings
from strandline.console.streams import Pulse, Streams
from strandline.console.watching import Watching
from strandline.console.web import Web
from strandline.core.messages import Endpoint
from strandline.metrics.families import Role
from strandline.metrics.port import MetricsPort
from strandline.rpc.channels import parse_endpoint, target
from strandline.rpc.server import HealthPort, RoleHealth
from strandline.rpc.tls import Tls, https_of, open_tls
from strandline.runtime.exit_codes import ExitCode, stop_process

LEAST_BETWEEN_EVENTS_MS = 250
_MOST_HEADER_BYTES = 32 << 10

_log = structlog.get_logger("strandline.console")


class _Server(uvicorn.Server):
    """A server that leaves signals to `runtime.process`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


def listen(endpoint: Endpoint) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address is taken or not local.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    return socket.create_server(endpoint, family=family, backlog=128)


async def run(
    settings: ConsoleSettings, stop_asked: asyncio.Event, *, started: Callable[[str], None] = lambda _: None
) -> ExitCode:
    """Serve until asked to stop; ``started`` is called with the address for browsers."""
    listening, tls = _opened(settings)
    health = RoleHealth([])
    probes = HealthPort("console", health)
    metrics = MetricsPort(Role.CONSOLE, tuple)
    try:
        await probes.open(settings.health_bind)
        metrics.open(settings.metrics_bind, https_of(tls, wanted=settings.metrics_tls))
    except OSError as error:
        stop_process(ExitCode.PORT_TAKEN, str(error))
    pulse = Pulse(LEAST_BETWEEN_EVENTS_MS)
    streams = Streams(pulse, settings.max_browsers)
    watching = Watching(settings, pulse.mark)
    site = Site(watching, report=settings.report, allow_changes=settings.allow_changes)
    server = _Server(_config(settings, Web(settings, site, pulse, streams, lambda: watching.cluster)))
    address = f"{'https' if settings.https_cert else 'http'}://{target(Endpoint(*listening.getsockname()[:2]))}"
    async with asyncio.TaskGroup() as parts:
        background = [parts.create_task(pulse.run()), parts.create_task(watching.run())]
        serving = parts.create_task(server.serve(sockets=[listening]))
        _log.info("serving", address=address, changes=settings.allow_changes)
        started(address)
        await health.set_ready(True)
        await health.set_serving(True)
        await stop_asked.wait()
        await health.set_serving(False)
        streams.stop()
        server.should_exit = True
        await serving
        for task in background:
            task.cancel()
    await asyncio.to_thread(metrics.close)
    await probes.close()
    _log.info("stopped")
    return ExitCode.CLEAN


def _opened(settings: ConsoleSettings) -> tuple[socket.socket, Tls | None]:
    """The port for browsers and the certificate, if all that settings name can be used; else the process ends."""
    endpoint = parse_endpoint(settings.bind)
    try:
        tls = open_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)
    except ValueError as error:
        stop_process(ExitCode.USAGE, str(error))
    try:
        return listen(endpoint), tls
    except OSError as error:
        stop_process(ExitCode.PORT_TAKEN, f"cannot listen on {target(endpoint)}: {error.strerror}")


def _config(settings: ConsoleSettings, web: Web) -> uvicorn.Config:
    config = uvicorn.Config(
        web.app(),
        loop="none",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        # Streams have a bound of their own; this bounds all other requests that keep a connection.
        limit_concurrency=settings.max_browsers + 200,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=max(1, settings.shutdown_deadline_ms // 1000),
        ssl_certfile=settings.https_cert or None,
        ssl_keyfile=settings.https_key or None,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        stop_process(ExitCode.USAGE, f"https_cert {settings.https_cert} or https_key cannot be used: {error}")
    return config
