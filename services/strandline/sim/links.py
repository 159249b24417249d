"""Decides how a node's questions reach leaders: one stream per leader for fetches, calls for everything else.

Invariant: every question ends in exactly one event; a broken stream fails all that was asked on it with one
`FetchFailed`, and nothing is asked twice here (as `follower.tasks` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.core import effects as want
from strandline.core import events
from strandline.core.types import NodeId
from strandline.sim.network import Call, Stream

if TYPE_CHECKING:
    from strandline.sim.process import Process

QUESTION_DEADLINE_US = 600_000
RECONNECT_US = (20_000, 200_000)


class _Forget:
    """Partitions that are no longer fetched."""

    def __init__(self, partitions: tuple[Any, ...]) -> None:
        self.partitions = partitions


class Links:
    """Everything one process asks of leaders."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._streams: dict[NodeId, Stream] = {}
        # Leaders that were given up: what is sent to them fails when the pause is over.
        self._pausing: set[NodeId] = set()

    def send_fetch(self, effect: want.SendFetch) -> None:
        """Put a fetch on the leader's stream."""
        stream = self._stream_to(effect.leader)
        if stream is not None:
            self._process.world.network.send_up(stream, (effect.correlation_id, effect.request))
        elif effect.leader not in self._pausing:
            self._pausing.add(effect.leader)
            draw = self._process.machine.draw
            self._process.world.timeline.after(draw.between(*RECONNECT_US), self._failed_to_connect, effect.leader)

    def _failed_to_connect(self, leader: NodeId) -> None:
        self._process.hand(self._give_up, leader)

    def _give_up(self, leader: NodeId) -> None:
        self._pausing.discard(leader)
        process = self._process
        process.step(events.FetchFailed(process.now_ms, leader, None, "no connection"))

    def send_forget(self, effect: want.SendForget) -> None:
        """End parked fetches on the leader's stream, if there is one."""
        stream = self._streams.get(effect.leader)
        if stream is not None:
            self._process.world.network.send_up(stream, _Forget(effect.partitions))

    def _stream_to(self, leader: NodeId) -> Stream | None:
        stream = self._streams.get(leader)
        if stream is not None or leader in self._pausing:
            return stream
        process = self._process
        stream = process.world.network.open_stream(
            process, int(leader), on_up=_at_leader, on_down=self._fetched, on_end_at_opener=self._broken,
            on_end_at_server=_ended_at_leader,
        )  # fmt: skip
        if stream is not None:
            self._streams[leader] = stream
        return stream

    def _fetched(self, stream: Stream, message: Any) -> None:
        correlation_id, partitions = message
        process = self._process
        leader = NodeId(stream.server.party_id)
        process.step(events.FetchAnswered(process.now_ms, leader, correlation_id, partitions))

    def _broken(self, stream: Stream) -> None:
        leader = NodeId(stream.server.party_id)
        if self._streams.get(leader) is stream:
            del self._streams[leader]
        process = self._process
        process.world.coverage.saw("stream broken")
        process.step(events.FetchFailed(process.now_ms, leader, None, "the stream broke"))

    def send_epoch_ends(self, effect: want.SendEpochEnds) -> None:
        """Ask where epochs ended."""
        process = self._process
        identity = process.core.state.identity

        def serve(call: Call) -> None:
            process.world.process_at(int(effect.leader)).serve(
                call, lambda now_ms, request: events.EpochEndsAsked(now_ms, request, effect.questions, identity)
            )

        def done(answers: Any) -> None:
            now_ms, leader, number = process.now_ms, effect.leader, effect.correlation_id
            if answers is None:
                process.step(events.EpochEndsFailed(now_ms, leader, number, "no answer"))
            else:
                process.step(events.EpochEndsAnswered(now_ms, leader, number, answers))

        process.world.network.call(process, int(effect.leader), serve, done, deadline_us=QUESTION_DEADLINE_US)

    def send_list_offsets(self, effect: want.SendListOffsets) -> None:
        """Ask for the leader's first and last offset."""
        process = self._process
        identity = process.core.state.identity

        def serve(call: Call) -> None:
            process.world.process_at(int(effect.leader)).serve(
                call, lambda now_ms, request: events.OffsetsAsked(now_ms, request, effect.questions, identity)
            )

        def done(answers: Any) -> None:
            now_ms, leader, number = process.now_ms, effect.leader, effect.correlation_id
            if answers is None:
                process.step(events.OffsetsFailed(now_ms, leader, number, "no answer"))
            else:
                process.step(events.OffsetsAnswered(now_ms, leader, number, answers))

        process.world.network.call(process, int(effect.leader), serve, done, deadline_us=QUESTION_DEADLINE_US)


def _at_leader(stream: Stream, message: Any) -> None:
    server: Any = stream.server
    if isinstance(message, _Forget):
        server.step(events.FetchForgotten(server.now_ms, stream.number, message.partitions))
    else:
        server.serve_fetch(stream, message)


def _ended_at_leader(stream: Stream) -> None:
    server: Any = stream.server
    server.end_fetches(stream)
