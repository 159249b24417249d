"""This node's questions to leaders: one long-lived stream per leader for fetches, calls for the rest.

Invariant: every question ends in exactly one event. A broken stream fails all its fetches with one `FetchFailed`,
whether or not they had been sent; nothing is retried here, the core retries.

`runtime.ports.Leaders` hides how a leader is reached, so that the simulator runs the same tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from strandline.core.errors import ErrorCode, Refused
from strandline.core.log import events
from strandline.core.log.effects import SendEpochEnds, SendFetch, SendForget, SendListOffsets, SendProducerSnapshot
from strandline.core.messages import ProducerSnapshotAnswer
from strandline.core.types import NodeId, TopicPartition
from strandline.runtime.host import Host
from strandline.runtime.outbox import Outbox
from strandline.runtime.ports import Backoff, FetchReply, Leaders


class LeaderStream:
    """The FetchStream to one leader, dialled when there is something to ask."""

    def __init__(self, leader: NodeId, owner: LeaderLinks) -> None:
        self._leader = leader
        self._owner = owner
        self._outbox: Outbox[SendFetch | SendForget] = Outbox()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(owner.done)

    def send(self, message: SendFetch | SendForget) -> None:
        """Queue a message for the stream; if the stream breaks before an answer, the core gets `FetchFailed`."""
        self._outbox.put(message)

    async def close(self) -> None:
        """End the stream without an event."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        backoff = self._owner.backoff()
        while True:
            await self._outbox.until_waiting()
            reason = await self._converse(backoff)
            self._outbox.clear()
            self._owner.fetch_failed(self._leader, None, reason)
            await asyncio.sleep(backoff.next_s())

    async def _converse(self, backoff: Backoff) -> str:
        """Open the stream and use it until it breaks; return the reason."""
        try:
            stream = self._owner.leaders.open_stream(self._leader)
        except Refused as error:
            return str(error.refusal)
        writer = asyncio.get_running_loop().create_task(self._outbox.write_all(stream.write))
        try:
            while (reply := await stream.read()) is not None:
                backoff.reset()
                self._owner.fetched(self._leader, reply)
            return "the leader ended the stream"
        except Refused as error:
            return str(error.refusal)
        finally:
            writer.cancel()
            stream.cancel()
            await asyncio.gather(writer, return_exceptions=True)


class LeaderLinks:
    """Sends this node's questions to leaders (`runtime.ports.Peers`)."""

    def __init__(self, host: Host, leaders: Leaders, *, backoff: Callable[[], Backoff]) -> None:
        self.leaders = leaders
        self.backoff = backoff
        self._driver = host.driver
        self._streams: dict[NodeId, LeaderStream] = {}
        self._questions: set[asyncio.Task[None]] = set()
        self._closed = False

    async def close(self) -> None:
        """End all streams and questions; none of them ends in an event any more."""
        self._closed = True
        for question in self._questions:
            question.cancel()
        await asyncio.gather(*self._questions, return_exceptions=True)
        for stream in self._streams.values():
            await stream.close()
        await self.leaders.close()

    def send_fetch(self, effect: SendFetch) -> None:
        """Send a fetch on the leader's stream."""
        stream = self._streams.get(effect.leader)
        if stream is None:
            stream = self._streams[effect.leader] = LeaderStream(effect.leader, self)
        stream.send(effect)

    def send_forget(self, effect: SendForget) -> None:
        """End parked fetches on the leader's stream, if there is one."""
        if effect.leader in self._streams:
            self._streams[effect.leader].send(effect)

    def fetched(self, leader: NodeId, reply: FetchReply) -> None:
        """Step the event for a message on a leader's stream."""
        if reply.refusal is not None:
            self.fetch_failed(leader, reply.correlation_id, str(reply.refusal))
            return
        driver = self._driver
        driver.step(events.FetchAnswered(driver.clock(), leader, reply.correlation_id, reply.partitions))
        if reply.is_another:
            self._dial_again(leader)

    def fetch_failed(self, leader: NodeId, correlation_id: int | None, reason: str) -> None:
        """Step the event for a failed fetch, or with None for all fetches on a stream."""
        if not self._closed:
            driver = self._driver
            driver.step(events.FetchFailed(driver.clock(), leader, correlation_id, reason))

    def _dial_again(self, leader: NodeId) -> None:
        """Leave the node that answers at a leader's address, and resolve the address again for the next question.

        A process that restarts may get another address, and another process its old one. A connection made in between
        works, but leads to the wrong node, so nothing else would cause the name to be resolved again.
        """
        self.leaders.renew(leader)
        stream = self._streams.pop(leader, None)
        if stream is not None:
            self._ask(stream.close())
        self.fetch_failed(leader, None, f"the process that answers at the address of node {leader} is another node")

    def send_epoch_ends(self, effect: SendEpochEnds) -> None:
        """Ask for the end offsets of epochs."""
        self._ask(self._epoch_ends(effect))

    def send_list_offsets(self, effect: SendListOffsets) -> None:
        """Ask for the leader's first and last offset."""
        self._ask(self._list_offsets(effect))

    def send_producer_snapshot(self, effect: SendProducerSnapshot) -> None:
        """Ask for the producer state below the leader's log start."""
        self._ask(self._producer_snapshot(effect))

    def _ask(self, question: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(question)
        self._questions.add(task)
        task.add_done_callback(self.done)

    def done(self, task: asyncio.Task[None]) -> None:
        """Forget a task that ended; an exception, which only a bug can cause, ends the process."""
        self._questions.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._driver.fail(error)

    def drop_stale(self) -> None:
        """Close connections to addresses that no node has any more; otherwise they would redial for ever."""
        work = self.leaders.drop_stale()
        if work is not None:
            self._ask(work)

    async def _epoch_ends(self, effect: SendEpochEnds) -> None:
        driver = self._driver
        try:
            answers = await self.leaders.epoch_ends(effect)
        except Refused as error:
            driver.step(
                events.EpochEndsFailed(driver.clock(), effect.leader, effect.correlation_id, str(error.refusal))
            )
            return
        driver.step(events.EpochEndsAnswered(driver.clock(), effect.leader, effect.correlation_id, answers))
        # The question names the leader epoch, so a node that answers that it does not lead is not the one meant.
        if any(each.refusal is not None and each.refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER for each in answers):
            self._dial_again(effect.leader)

    async def _producer_snapshot(self, effect: SendProducerSnapshot) -> None:
        driver = self._driver
        try:
            answer = await self.leaders.producer_snapshot(effect)
        except Refused as error:
            if error.refusal.code is not ErrorCode.UNSUPPORTED_VERSION:
                reason = str(error.refusal)
                driver.step(events.ProducerSnapshotFailed(driver.clock(), effect.leader, effect.correlation_id, reason))
                return
            # The leader is of an earlier release without this method, which counts as an answer.
            answer = ProducerSnapshotAnswer(effect.question.tp, refusal=error.refusal)
        driver.step(events.ProducerSnapshotAnswered(driver.clock(), effect.leader, effect.correlation_id, answer))

    async def _list_offsets(self, effect: SendListOffsets) -> None:
        driver = self._driver
        try:
            answers = await self.leaders.list_offsets(effect)
        except Refused as error:
            driver.step(events.OffsetsFailed(driver.clock(), effect.leader, effect.correlation_id, str(error.refusal)))
            return
        if _same_order([answer.tp for answer in answers], [question.tp for question in effect.questions]):
            driver.step(events.OffsetsAnswered(driver.clock(), effect.leader, effect.correlation_id, answers))
            return
        reason = "the answers do not match the questions"
        driver.step(events.OffsetsFailed(driver.clock(), effect.leader, effect.correlation_id, reason))


def _same_order(answered: list[TopicPartition], asked: list[TopicPartition]) -> bool:
    """Whether the answers are for exactly the partitions of the questions, grouped by topic like requests."""
    topics = list(dict.fromkeys(tp.topic_id for tp in asked))
    return answered == sorted(asked, key=lambda tp: topics.index(tp.topic_id))
