"""Runs the analytics server: opens Spark, serves, and stops without leaving work behind.

Invariant: health says SERVING only while questions are answered; the session outlives every job.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
import structlog
from pyspark.sql import SparkSession

from strandline.client.administer.followed_rules import FollowedRules
from strandline.core.messages import Endpoint
from strandline.metrics.families import QUESTIONS, QUESTIONS_WAITING, Role
from strandline.metrics.figures import Figure
from strandline.metrics.port import MetricsPort
from strandline.rpc.channels import parse_endpoint, target
from strandline.rpc.server import HealthPort, PortTaken, RoleHealth, ServerSettings, bind, build_server, start_tokens
from strandline.rpc.tls import TLS_OFF, Tls, https_of, open_tls
from strandline_analytics.service.engine import Engine
from strandline_analytics.service.jobs import JobQueue, JobState
from strandline_analytics.service.live import Arrivals, LiveState, Watches
from strandline_analytics.service.servicer import SERVICE, AnalyticsServicer
from strandline_analytics.service.settings import AnalyticsSettings
from strandline_analytics.sources.places import open_place

_GRACE_S = 1.0

_log = structlog.get_logger("strandline.analytics")


class AnalyticsServer:
    """A server in this process, over a session that its caller opened and will stop."""

    def __init__(self, settings: AnalyticsSettings, spark: SparkSession) -> None:
        self._settings = settings
        self._spark = spark
        self.endpoint: Endpoint | None = None
        self.health_endpoint: Endpoint | None = None
        self._health = RoleHealth([SERVICE])
        self._health_port = HealthPort("analytics", self._health)
        self._metrics = MetricsPort(Role.ANALYTICS, lambda: queue_figures(self.queue))
        self.metrics_address = ""
        self.owned: list[asyncio.Task[None]] = []
        """The tasks that do the work and follow rules and keys; the end of one by an exception is the server's end."""

    async def start(self) -> Endpoint:
        """Serve; returns the address with its port.

        Raises:
            PortTaken: the address cannot be bound.
            NothingThere: an input is neither a directory nor a URI.
            TlsWrong: the files of TLS or of tokens cannot be used.
        """
        settings = self._settings
        tls = open_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)
        if tls is None:
            _log.info(TLS_OFF)
        self.health_endpoint = await self._health_port.open(settings.health_bind)
        rules = self._follow_rules() if settings.rules_of else None
        tokens = await start_tokens(settings.token_issuers, tls, self._own)
        self._server: grpc.aio.Server = build_server(
            ServerSettings(name="analytics", reflection=settings.reflection),
            tls=tls,
            acls=rules.now if rules else None,
            tokens=tokens,
        )
        self._health.attach(self._server, with_reflection=settings.reflection)
        engine = Engine(self._spark, most_rows=settings.most_rows)
        # Run ids of two processes of one server differ, so that one is not mistaken for the other's.
        prefix = f"{uuid.uuid4().hex[:8]}-"
        self.queue = JobQueue(settings.queue_length, interrupt=engine.interrupt, prefix=prefix)
        watches = Watches(arrivals_of(self._spark, settings), poll_s=settings.poll_s)
        AnalyticsServicer(settings, engine, self.queue, watches).add_to(self._server)
        self.endpoint = bind(self._server, settings.bind, tls=tls, takes_tokens=tokens is not None)
        self.metrics_address = self._open_metrics(tls)
        self._own(self.queue.run_forever())
        await self._server.start()
        if settings.warm:
            self.queue.submit("warm up", lambda job: engine.warm(job, settings.inputs))
        await self._health.set_serving(True)
        await self._health.set_ready(True)
        _log.info("serving", address=target(self.endpoint), inputs=",".join(settings.inputs))
        return self.endpoint

    def _follow_rules(self) -> FollowedRules:
        settings = self._settings
        tls = {"tls_cert": settings.tls_cert, "tls_key": settings.tls_key, "tls_ca": settings.tls_ca}
        followed = FollowedRules(settings.rules_of, **tls)
        self._own(followed.follow_forever())
        return followed

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        self.owned.append(asyncio.create_task(work))

    def _open_metrics(self, tls: Tls | None) -> str:
        https = https_of(tls, wanted=self._settings.metrics_tls)
        try:
            return self._metrics.open(self._settings.metrics_bind, https) or ""
        except OSError as error:
            raise PortTaken(parse_endpoint(self._settings.metrics_bind)) from error

    async def shut_down(self) -> None:
        """Refuse new questions, cancel those that are running, and stop."""
        await self._health.set_serving(False)
        self.queue.close()
        await self._server.stop(_GRACE_S)
        for task in self.owned:
            task.cancel()
        await asyncio.gather(*self.owned, return_exceptions=True)
        await asyncio.to_thread(self._metrics.close)
        await self._health_port.close()
        _log.info("stopped")


async def serve(
    settings: AnalyticsSettings,
    spark: SparkSession,
    stop_asked: asyncio.Event,
    *,
    started: Callable[[Endpoint], None] = lambda _: None,
) -> None:
    """Serve until it is asked to stop; ``started`` is called with the address.

    Raises:
        PortTaken: the address cannot be bound.
        Exception: what ended the worker.
    """
    server = AnalyticsServer(settings, spark)
    started(await server.start())
    stopping = asyncio.create_task(stop_asked.wait())
    try:
        await asyncio.wait([stopping, *server.owned], return_when=asyncio.FIRST_COMPLETED)
        for task in server.owned:
            if task.done():
                task.result()
    finally:
        stopping.cancel()
        await server.shut_down()


def arrivals_of(spark: SparkSession, settings: AnalyticsSettings) -> Callable[[LiveState], None]:
    """A function that applies newly arrived files of the inputs to a state."""
    places = [open_place(spark, name) for name in settings.inputs]
    arrivals = Arrivals(
        places,
        hours=settings.watch_hours,
        on_damage=lambda reported: _log.warning("a file is left out", reason=reported),
    )

    def look(state: LiveState) -> None:
        for rows in arrivals.look():
            state.take(rows)

    return look


def queue_figures(queue: JobQueue) -> Iterator[Figure]:
    """Metrics: the number of waiting questions, and of ended ones by outcome; each outcome starts as a zero."""
    yield Figure(QUESTIONS_WAITING, queue.waiting)
    for state in JobState:
        if state.is_end:
            yield Figure(QUESTIONS, queue.ended[state.value], (state.value,))
