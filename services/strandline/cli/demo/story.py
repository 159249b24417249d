"""The demo's order of events: start, load, kill, elect, continue, return, verify.

Invariant: whatever happens in between, every process that was started is stopped at the end, and the run's
directory stays.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from strandline.cli.demo.load import Load
from strandline.cli.demo.watch import ClusterWatch, Election, TruncationSeen, truncations
from strandline.cli.failures import CommandFailed
from strandline.units import duration_text

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.cli.demo.load import Corpus
    from strandline.cli.demo.screen import Scene, Screen
    from strandline.cli.local.local_cluster import LocalCluster
    from strandline.cli.local.log_equality import Copy

TOPIC = "demo"
ELECTION_TIMEOUT_MS = 30_000
RETURN_TIMEOUT_MS = 60_000
SETTLE_TIMEOUT_MS = 15_000
_KILL_SHARE, _HOLD_SHARE = 0.5, 0.75
"""Shares of all lines: when the leader is killed, and what is sent before its return. The rest waits for it."""
_REFRESH_S = 0.1
_RATE_OVER_S = 2.0
_EXPORT_S = 0.5
_AHEAD_S = 0.2
"""Long enough to append several batches, far shorter than a session: no node is fenced for it."""


class Story:
    """One run of the demo, shown on ``screen`` while it happens."""

    def __init__(self, corpus: Corpus, cluster: LocalCluster, screen: Screen, scene: Scene) -> None:
        self.corpus = corpus
        self.cluster = cluster
        self.screen = screen
        self.scene = scene
        self.victim: int | None = None
        self.topic = TOPIC
        self.elected_after_ms = self.pause_ms = 0.0
        self.window_us = (0, 0)
        """When the counted run begins, all replicas in sync, and ends, all committed everywhere; us since 1970."""
        self.truncations: list[TruncationSeen] = []
        self.load: Load | None = None
        self.watch: ClusterWatch | None = None

    async def play(self) -> None:
        """Everything up to the clean stop of all processes; what remains is to verify.

        Raises:
            CommandFailed: when a step does not come about in its time; the message says which.
        """
        from strandline.client.cluster.metadata import Cluster

        ticking = asyncio.create_task(self._tick())
        try:
            await self._start()
            known = Cluster(self.cluster.bootstrap, all_topics=True)
            await known.start()
            try:
                await self._create_topic()
                self.watch = ClusterWatch(known, TOPIC)
                await self._replicate(self.watch)
            finally:
                await known.close()
        finally:
            ticking.cancel()
            self.scene.moving = False
            self.screen.refresh()
            await self._stop()

    async def _start(self) -> None:
        from strandline.cli.local.processes import ServiceDied

        began = time.monotonic()
        try:
            await self.cluster.start()
        except (ServiceDied, TimeoutError) as error:
            raise CommandFailed(str(error)) from error
        names = ", ".join(f"{service.name} (pid {service.pid})" for service in self.cluster.services)
        self.screen.tell("started", f"{names} in {duration_text((time.monotonic() - began) * 1000)}")
        for service in self.cluster.services:
            self.scene.services[service.name] = "up"

    async def _create_topic(self) -> None:
        from strandline.client import Admin

        async with Admin(self.cluster.bootstrap) as admin:
            await admin.create_topic(
                TOPIC,
                partitions=self.corpus.partitions,
                replication_factor=3,
                configs={"min.insync.replicas": "2"},
            )
        self.screen.tell("topic", f"{TOPIC}: {self.corpus.partitions} partitions, 3 replicas each, min ISR 2")

    async def _replicate(self, watch: ClusterWatch) -> None:
        watch.begin()
        if not await watch.until(lambda: self._all_in_sync(watch), RETURN_TIMEOUT_MS):
            raise CommandFailed("the new topic's replicas did not all join the ISR")
        watch.count_from_now()
        self.window_us = (time.time_ns() // 1_000, 0)
        hold_at = int(self.corpus.lines * _HOLD_SHARE)
        self.load = load = Load(self.corpus, TOPIC, self.cluster.bootstrap, self.cluster.directory, hold_at)
        self.screen.tell("load", "a producer (acks=all, idempotent) sends every line; a consumer reads along")
        self.scene.lines, self.scene.moving = self.corpus.lines, True
        try:
            await load.begin()
            await self._crash_and_return(load, watch)
            await load.until(lambda: load.acks.done)
            await load.until(lambda: load.reads.done)
            await self._settle(watch)
            self.window_us = (self.window_us[0], time.time_ns() // 1_000)
        finally:
            await load.close()

    async def _crash_and_return(self, load: Load, watch: ClusterWatch) -> None:
        await load.until(lambda: load.acks.acked >= int(self.corpus.lines * _KILL_SHARE))
        victim = self.victim = watch.leads_most()
        led = watch.led_by(victim)
        followers = [node_id for node_id in self.cluster.nodes if node_id != victim]
        await self._hold_back(followers, victim)
        killed_ms = self._kill(victim, led)
        for node_id in followers:
            self.cluster.nodes[node_id].resume()
        await self._see_elections(load, watch, killed_ms, victim, led)
        await load.until(lambda: load.acks.is_held or load.acks.done)
        await self._bring_back(victim, load, watch)

    async def _hold_back(self, followers: list[int], victim: int) -> None:
        """Let the leader get ahead of its followers, so that it dies with records that were never committed."""
        for node_id in followers:
            self.cluster.nodes[node_id].pause()
        names = " and ".join(f"node-{node_id}" for node_id in followers)
        self.screen.tell("held back", f"{names} stand still for {_AHEAD_S * 1000:.0f} ms: node-{victim} gets ahead")
        await asyncio.sleep(_AHEAD_S)

    def _kill(self, victim: int, led: list[int]) -> float:
        pid, killed_ms = self.cluster.nodes[victim].pid, time.monotonic() * 1000
        self.cluster.kill_node(victim)
        self.scene.services[f"node-{victim}"] = "down"
        self.screen.tell(
            "kill -9",
            f"node-{victim} (pid {pid}), leader of {len(led)} of {self.corpus.partitions} partitions",
            tone="bold red",
        )
        return killed_ms

    async def _see_elections(
        self, load: Load, watch: ClusterWatch, killed_ms: float, victim: int, led: list[int]
    ) -> None:
        if not await watch.until(lambda: watch.elected_since(killed_ms, led), ELECTION_TIMEOUT_MS):
            raise CommandFailed(f"no new leader within {duration_text(ELECTION_TIMEOUT_MS)} for every partition")
        votes = {vote.partition: vote for vote in watch.elections if vote.new is not None and vote.at_ms >= killed_ms}
        took_ms = self.elected_after_ms = max(votes[partition].at_ms for partition in led) - killed_ms
        self.screen.tell("elected", f"{_votes(votes, led, victim)}; {duration_text(took_ms)} after the kill")
        await load.until(lambda: _heard(load, votes, led))
        self.pause_ms = max(_pause_ms(load, votes[partition]) for partition in led)
        pause = f"those partitions gave no ack for {self.pause_ms:,.0f} ms"
        self.screen.tell("resumed", pause if self.pause_ms else "no ack was late by 100 ms", tone="bold green")

    async def _bring_back(self, victim: int, load: Load, watch: ClusterWatch) -> None:
        from strandline.cli.local.processes import ServiceDied

        name, began = f"node-{victim}", time.monotonic()
        behind = load.acks.acked - await asyncio.to_thread(held_records, self.cluster.nodes[victim].directory)
        self.scene.services[name] = "returning"
        try:
            address = await self.cluster.start_node(victim)
        except (ServiceDied, TimeoutError) as error:
            raise CommandFailed(f"{name} did not come back: {error}") from error
        load.go_on()
        self.screen.tell("restarted", f"{name} (pid {address.pid}), {behind:,} records behind; the load goes on")
        if not await watch.until(lambda: watch.in_every_isr(victim), RETURN_TIMEOUT_MS):
            raise CommandFailed(
                f"{name} is in {watch.isr_places(victim)} of {self.corpus.partitions} ISRs after "
                f"{duration_text(RETURN_TIMEOUT_MS)}; its output is in {self.cluster.nodes[victim].output}"
            )
        self.truncations = await self._truncations_of(victim, watch)
        self.screen.tell("truncated", _cuts(name, self.truncations))
        self.scene.services[name] = "up"
        took = duration_text((time.monotonic() - began) * 1000)
        self.screen.tell("in sync", f"{name} is back in every ISR, {took} after its start", tone="bold green")

    async def _truncations_of(self, node_id: int, watch: ClusterWatch) -> list[TruncationSeen]:
        """What a node exported; its file is written a moment after the event."""
        await asyncio.sleep(_EXPORT_S)
        topic_id = watch.partitions[0].tp.topic_id
        return truncations(self.cluster.nodes[node_id].directory, topic_id)

    async def _settle(self, watch: ClusterWatch) -> None:
        """Waits until every replica's HW has reached its end, so that all of the log can be compared."""
        from strandline.cli.local.log_over_rpc import copies_of

        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_TIMEOUT_MS / 1000):
                while not all(_settled(copies) for copies in await copies_of(watch.cluster, TOPIC)):
                    await asyncio.sleep(_REFRESH_S)

    def _all_in_sync(self, watch: ClusterWatch) -> bool:
        partitions = watch.partitions
        return len(partitions) == self.corpus.partitions and all(
            partition.leader is not None and len(partition.isr) == len(partition.replicas) for partition in partitions
        )

    async def _tick(self) -> None:
        """Keeps the moving part moving, the rate over the last two seconds."""
        window: list[tuple[float, int]] = []
        while True:
            if self.load is not None:
                acked, now = self.load.acks.acked, time.monotonic()
                window = [*[entry for entry in window if now - entry[0] < _RATE_OVER_S], (now, acked)]
                elapsed_s = max(now - window[0][0], _REFRESH_S)
                line_bytes = self.corpus.size_bytes / self.corpus.lines
                self.scene.rate_bytes_s = (acked - window[0][1]) * line_bytes / elapsed_s
                self.scene.acked, self.scene.acked_bytes = acked, round(acked * line_bytes)
                self.scene.consumed = self.load.reads.consumed
            self.screen.refresh()
            await asyncio.sleep(_REFRESH_S)

    async def _stop(self) -> None:
        ends = await self.cluster.stop()
        wrong = [end.sentence for end in ends if end.forced or end.code not in (0, -9)]
        self.screen.tell("stopped", "; ".join(wrong) or "all processes, cleanly", tone="bold red" if wrong else "")


def held_records(directory: Path) -> int:
    """How many records the logs in a data directory hold, by their files."""
    from strandline.storage.checkpoints import Checkpoints
    from strandline.storage.inspect import log_bounds, log_directories

    checkpoints = Checkpoints.load(directory)
    bounds = [log_bounds(path, checkpoints) for path in log_directories(directory).values()]
    return sum(bound.leo - bound.log_start_offset for bound in bounds)


def _settled(copies: list[Copy]) -> bool:
    """Whether all copies end at the same offset and know all of it to be committed."""
    ends = {copy.leo for copy in copies} | {copy.high_watermark for copy in copies}
    return len(ends) == 1


def _heard(load: Load, votes: dict[int, Election], led: list[int]) -> bool:
    """Whether every partition that lost its leader was acknowledged by the new one, or all that was sent is."""
    heard = load.acks.last_heard_ms
    if load.acks.done or load.acks.is_held:
        return True
    return bool(heard) and all(heard[partition] > votes[partition].at_ms for partition in led)


def _pause_ms(load: Load, vote: Election) -> float:
    """How long a partition gave no acknowledgement around its election; 0 if it was too short to be noted."""
    around = [
        silence.length_ms
        for silence in load.acks.silences
        if silence.partition == vote.partition and silence.from_ms <= vote.at_ms <= silence.to_ms
    ]
    return max(around, default=0.0)


def _votes(votes: dict[int, Election], led: list[int], old: int) -> str:
    """`p0: node-1 -> node-2, epoch 1` for each partition."""
    reported = [f"p{partition}: node-{old} -> node-{votes[partition].new}" for partition in led]
    epochs = sorted({votes[partition].leader_epoch for partition in led})
    return f"{', '.join(reported)}, epoch {' and '.join(str(epoch) for epoch in epochs)}"


def _cuts(name: str, cuts: list[TruncationSeen]) -> str:
    if not cuts:
        return f"{name} had nothing to cut: its log is a prefix of the new leaders' logs"
    reported = ", ".join(f"p{cut.partition} from {cut.from_leo:,} to {cut.to_leo:,}" for cut in cuts)
    return f"{name} cut {sum(cut.records for cut in cuts):,} records that were never committed: {reported}"
