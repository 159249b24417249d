"""Keeps a node in its cluster: registration, heartbeats, the metadata watch, the controlled shutdown.

Invariant: a process registers exactly once in its life. When a newer process has taken its place, or the controller
refuses it for good, it ends with an exit code of its own; every other failure is retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import structlog

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.log import events
from strandline.core.log.effects import SendAlterPartition, SendReplicaLogs
from strandline.core.positions import later_of
from strandline.core.types import NodeEpoch
from strandline.runtime.clock import SYSTEM_CLOCKS, Clocks
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.host import Host
from strandline.runtime.ports import Backoff, Controller, Log

_log: Log = structlog.get_logger("strandline.session")

_WATCH_SILENCE_SESSIONS = 3
"""The number of session time-outs after which a silent watch is opened again."""


class SessionTimings(NamedTuple):
    """Durations in ms. The simulator shortens them like all other durations in its world."""

    first_interval_ms: int = 500
    """Interval between heartbeats until the controller has sent its own."""
    farewell_interval_ms: int = 100
    shortest_deadline_ms: int = 500
    """A heartbeat waits at least this long for its answer, however short the interval is."""
    duplicate_ms: int = 60_000
    """How long to wait for the end of an old process's session; if it has not ended by then, that process is alive."""
    session_timeout_ms: int = 9_000
    """Session time-out until the controller has sent its own."""


USUAL_TIMINGS = SessionTimings()

_NOTHING_KNOWN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Refusals after which it is unknown whether the controller has carried out the request."""


class Session:
    """One process's membership in the cluster. ``stop`` ends the process."""

    def __init__(
        self,
        controller: Controller,
        host: Host,
        *,
        stop: Callable[[ExitCode, str], NoReturn],
        backoff: Callable[[], Backoff],
        oldest_sync_ms: Callable[[int, int], int] = lambda _now_ms, _longest_look_ms: 0,
        clocks: Clocks = SYSTEM_CLOCKS,
        timings: SessionTimings = USUAL_TIMINGS,
        log: Log = _log,
    ) -> None:
        self._controller = controller
        self._host = host
        self._stop = stop
        self._backoff = backoff
        self._oldest_sync_ms = oldest_sync_ms
        self._clocks = clocks
        self._timings = timings
        self._log = log
        self._cluster_id = ""
        self.session_timeout_ms = timings.session_timeout_ms
        self.is_fenced = True
        self._interval_ms = timings.first_interval_ms
        self._beat_now = asyncio.Event()
        self._want_shut_down = False
        self._may_stop = asyncio.Event()
        self._heartbeats_failed = 0
        self._clock_offset_us: int | None = None
        self._clock_err_us: int | None = None
        # The newest position that this process can prove it received, and the position of the last change of a topic.
        self._position: messages.PositionProof | None = None
        self._topics_position: messages.Position | None = None
        self._watching: asyncio.Task[None] | None = None
        self.heard_us: int | None = None
        """When the watch last received anything, even a sign of life, in monotonic microseconds; None: never."""
        self._asking: set[asyncio.Task[None]] = set()

    async def register(self, request: messages.RegisterNode) -> messages.NodeRegistered:
        """Register, and retry after every failure that may pass; return the controller's answer.

        A final refusal ends the process.
        """
        self._position, self._topics_position = request.position, request.topics_position
        backoff = self._backoff()
        last_said = ""
        began_us = self._clocks.mono_us()
        while True:
            answer = await self._try_to_register(request)
            if answer.refusal is None:
                break
            refusal = answer.refusal
            is_duplicate = refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            if not refusal.retriable or (
                is_duplicate and self._clocks.mono_us() - began_us > 1_000 * self._timings.duplicate_ms
            ):
                self._stop(ExitCode.REFUSED, f"the controller refuses node {request.node_id}: {refusal}")
            if str(refusal) != last_said:
                last_said = str(refusal)
                self._log.warning("registration waits", reason=last_said)
            await asyncio.sleep(backoff.next_s())
        return answer

    async def _try_to_register(self, request: messages.RegisterNode) -> messages.NodeRegistered:
        try:
            return await self._controller.register(request)
        except Refused as error:
            return messages.NodeRegistered(refusal=error.refusal)

    def begin(self, answer: messages.NodeRegistered) -> None:
        """Give the core its new identity. The position of the registration is durable when this returns."""
        assert answer.node_epoch is not None, "a registration without refusal gives a node epoch"
        self._cluster_id = answer.cluster_id
        self._host.node_epoch = answer.node_epoch
        self._host.topics.cluster_id = answer.cluster_id
        driver = self._host.driver
        self._position = later_of(self._position, answer.position)
        epochs = (answer.node_epoch, answer.controller_epoch)
        driver.step(events.Registered(driver.clock(), answer.cluster_id, *epochs, answer.position))

    @property
    def position(self) -> messages.PositionProof | None:
        """The newest position that this process has received."""
        return self._position

    @property
    def _node_epoch(self) -> NodeEpoch:
        assert self._host.node_epoch is not None, "only a registered node speaks in its own name"
        return self._host.node_epoch

    async def beat_forever(self) -> None:
        """Send heartbeats until cancelled."""
        backoff = self._backoff()
        while True:
            self._beat_now.clear()
            self._check_disk()
            answer = await self._beat()
            if answer is None:
                self._heartbeats_failed += 1
                await asyncio.sleep(min(backoff.next_s(), self._interval_ms / 1000))
                continue
            backoff.reset()
            self._heartbeats_failed = 0
            self._take(answer)
            try:
                async with asyncio.timeout(self._wait_ms / 1000):
                    await self._beat_now.wait()
            except TimeoutError:
                continue

    @property
    def _wait_ms(self) -> int:
        return self._timings.farewell_interval_ms if self._want_shut_down else self._interval_ms

    @property
    def _deadline_ms(self) -> int:
        return max(self._interval_ms, self._timings.shortest_deadline_ms)

    async def _beat(self) -> messages.HeartbeatAnswer | None:
        heartbeat = messages.Heartbeat(
            cluster_id=self._cluster_id,
            node_id=self._host.node_id,
            node_epoch=self._node_epoch,
            metadata_offset=self._host.topics.metadata_offset,
            want_shut_down=self._want_shut_down,
            clock_offset_us=self._clock_offset_us,
            clock_err_us=self._clock_err_us,
            position=self._position,
            topics_position=self._topics_position,
            disk_nearly_full=self._host.low_space(self._host.driver.clock()) is not None,
        )
        began_us, began_mono_us = self._clocks.wall_us(), self._clocks.mono_us()
        try:
            answer = await self._controller.heartbeat(heartbeat, self._deadline_ms)
            self._compare_clocks(answer, began_us, self._clocks.mono_us() - began_mono_us)
        except Refused as error:
            self._check(error.refusal)
            return None
        if answer.refusal is not None:
            self._check(answer.refusal)
            self._log.warning("heartbeat refused", reason=str(answer.refusal))
            return None
        return answer

    def _compare_clocks(self, answer: messages.HeartbeatAnswer, began_us: int, round_trip_us: int) -> None:
        """The controller read its clock during the round trip; assuming the middle, the error is at most half of it."""
        if answer.controller_wall_us is not None:
            self._clock_offset_us = began_us + round_trip_us // 2 - answer.controller_wall_us
            self._clock_err_us = (round_trip_us + 1) // 2

    def _take(self, answer: messages.HeartbeatAnswer) -> None:
        self.session_timeout_ms = answer.session_timeout_ms or self.session_timeout_ms
        self._interval_ms = answer.heartbeat_interval_ms or self._interval_ms
        if answer.is_fenced != self.is_fenced:
            self.is_fenced = answer.is_fenced
            self._log.info("fenced" if answer.is_fenced else "unfenced", node_epoch=self._node_epoch)
        if answer.should_shut_down:
            self._may_stop.set()

    def _check(self, refusal: Refusal) -> None:
        """End the process if another one is registered, or if the controller belongs to another cluster."""
        if refusal.code is ErrorCode.STALE_BROKER_EPOCH:
            self._stop(ExitCode.FENCED, f"the controller no longer accepts this process: {refusal}")
        if refusal.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._stop(ExitCode.REFUSED, f"the controller is another cluster's: {refusal}")

    def _check_disk(self) -> None:
        """End the process if an fsync hangs: a node that cannot acknowledge must not keep its session (M59)."""
        age_ms = self._oldest_sync_ms(self._host.driver.clock(), 2 * self._interval_ms)
        if age_ms > self.session_timeout_ms:
            self._stop(ExitCode.FSYNC_HUNG, f"an fsync has taken {age_ms} ms, longer than the session time-out")

    async def released(self) -> None:
        """Wait until the controller has moved all leaders off this node, after `say_farewell` or ShutdownNode."""
        await self._may_stop.wait()

    async def say_farewell(self, deadline_ms: int) -> bool:
        """Ask for a controlled shutdown; return whether the controller agreed before the deadline.

        Three unanswered heartbeats in a row end the wait: there is no controller to move the leaders.
        """
        self._want_shut_down = True
        self._heartbeats_failed = 0
        self._beat_now.set()
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                while self._heartbeats_failed < 3 and not self._may_stop.is_set():
                    await self._may_stop_or(self._timings.farewell_interval_ms)
        except TimeoutError:
            return False
        return self._may_stop.is_set()

    async def _may_stop_or(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._may_stop.wait()
        except TimeoutError:
            return

    async def watch_forever(self) -> None:
        """Follow the metadata until cancelled, and reconnect as often as needed."""
        backoff = self._backoff()
        while True:
            self._watching = asyncio.get_running_loop().create_task(self._watch(backoff))
            try:
                await asyncio.wait({self._watching})
            finally:
                if not self._watching.done():
                    self._watching.cancel()
            if not self._watching.cancelled() and self._watching.exception() is not None:
                self._watching.result()
            await asyncio.sleep(backoff.next_s())

    async def _watch(self, backoff: Backoff) -> None:
        silence_s = _WATCH_SILENCE_SESSIONS * self.session_timeout_ms / 1000
        try:
            async with aclosing(
                self._controller.watch(self._cluster_id, self._host.node_id, self._node_epoch, self._position)
            ) as images:
                while True:
                    async with asyncio.timeout(silence_s):
                        image = await anext(images)
                    backoff.reset()
                    self.heard_us = self._clocks.mono_us()
                    if image is not None:
                        driver = self._host.driver
                        driver.step(events.MetadataArrived(driver.clock(), image))
                        # One change per turn of the event loop, so that a fetch waits for at most one of them.
                        await asyncio.sleep(0)
        except (StopAsyncIteration, TimeoutError):
            return
        except Refused as error:
            self._check(error.refusal)

    def believe(self, image: messages.MetadataImage) -> None:
        """Apply metadata that the core has accepted (`BelieveMetadata`)."""
        self._position = later_of(self._position, image.position)
        if image.is_about_topics:
            self._topics_position = image.place
        is_first = self._host.topics.metadata_offset < 0
        self._host.topics.apply(image)
        if is_first or self.is_fenced:
            self._beat_now.set()

    def ignore(self, reason: str) -> None:
        """Log metadata that the core has rejected (`IgnoreMetadata`)."""
        self._log.error("metadata that cannot be true is ignored", reason=reason)

    def refresh(self) -> None:
        """Reopen the watch (`RefreshMetadata`)."""
        if self._watching is not None:
            self._watching.cancel()

    def alter_partition(self, effect: SendAlterPartition) -> None:
        """Propose ISRs to the controller; the answer is exactly one event."""
        self._spawn(self._alter(effect))

    async def _alter(self, effect: SendAlterPartition) -> None:
        driver = self._host.driver
        sequence = effect.request.request_sequence
        try:
            answer = await self._controller.alter_partition(replace(effect.request, position=self._position))
            self._position = later_of(self._position, answer.position)
        except Refused as error:
            if error.refusal.code in _NOTHING_KNOWN:
                driver.step(events.AlterPartitionFailed(driver.clock(), sequence, str(error.refusal)))
                return
            answer = messages.AlterPartitionAnswer(refusal=error.refusal)
        driver.step(events.AlterPartitionAnswered(driver.clock(), sequence, answer))

    def report_logs(self, effect: SendReplicaLogs) -> None:
        """Report logs to the controller; the answer is exactly one event."""
        self._spawn(self._report(effect))

    async def _report(self, effect: SendReplicaLogs) -> None:
        try:
            refusal = (await self._controller.report_logs(effect.request)).refusal
        except Refused as error:
            refusal = error.refusal
        driver = self._host.driver
        driver.step(events.ReplicaLogsAnswered(driver.clock(), effect.report_id, refusal))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.driver.fail(error)

    async def close(self) -> None:
        """Cancel the requests under way."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
