"""Asks other processes of a run about transactions: the ports of `runtime.transaction_links` over the network.

Invariant: a question without an answer in time counts as refused, but may still be carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strandline.core.coordinator.internal_topics import TRANSACTION_STATE
from strandline.core.coordinator.machine import Reports
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import Shard, ShardLimits, ShardState
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.records import ProducerFenceKey
from strandline.core.groups.reporting import GroupReporting
from strandline.core.log.events import CoordinatorAsked, Event, ProduceArrived
from strandline.core.messages import ProducePartition
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.messages import AddPartitions, MarkerQuestion
from strandline.core.transactions.records import TransactionalIdKey
from strandline.core.types import (
    OF_TRANSACTIONS,
    Acks,
    BatchHeader,
    Marker,
    NodeId,
    Offset,
    ProducerStamp,
    TopicPartition,
)
from strandline_sim.checks.committed import Broken
from strandline_sim.checks.history import VALUE_BITS
from strandline_sim.world.cluster import Cluster
from strandline_sim.world.draws import Draw, Purpose
from strandline_sim.world.network import Call
from strandline_sim.world.process import Process
from strandline_sim.world.record_codec import NumberedCodec

DEADLINE_MS = 400
PEERS_KEY = 2_000
"""Key of the draws for the first node's questions; the keys of the other nodes follow."""
MARKERS = 99
"""The client number in the values of markers."""
_MARKER_BYTES = 78


class KnownPlaces:
    """The nodes to ask, by the metadata of one process (`runtime.ports.TransactionPlaces`)."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def coordinator_of(self, transactional_id: str) -> NodeId | Refusal:
        """The node of a coordinator."""
        tp = self._process.core.coordinator_partition(TRANSACTION_STATE, transactional_id)
        if tp is None:
            return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the topic of transactions is not known yet")
        return self.leader_of(tp)

    def leader_of(self, tp: TopicPartition) -> NodeId | Refusal:
        """The node that leads a partition."""
        image = self._process.host.topics.partition(tp)
        if image is None or image.leader is None:
            return Refusal(ErrorCode.LEADER_NOT_AVAILABLE, f"no leader of p{tp.partition} is known")
        return image.leader


class ReachedPeers:
    """Calls other processes (`runtime.ports.TransactionPeers`); some calls arrive twice, or late."""

    def __init__(self, process: Process, world: Cluster, next_marker: Callable[[], int]) -> None:
        self._process = process
        self._world = world
        self._next_marker = next_marker
        self._draw = Draw(process.world.shape.seed, Purpose.CLIENT, PEERS_KEY + int(process.node_id))

    async def add_partitions(self, node: NodeId, questions: Sequence[AddPartitions]) -> Sequence[Refusal | None]:
        """Ask the coordinators on one node.

        Raises:
            Refused: REQUEST_TIMED_OUT, no answer came.
        """
        answers = await self._ask(node, [_adding(each) for each in questions], "question")
        return [each if isinstance(each, Refusal) else None for each in answers]

    async def write_markers(self, node: NodeId, questions: Sequence[MarkerQuestion]) -> Sequence[Refusal | None]:
        """Have the leaders on one node write markers; otherwise as `add_partitions`."""
        answers = await self._ask(node, [self._marking(each) for each in questions], "marker")
        return [results[0].refusal for results in answers]

    async def close(self) -> None:
        """Do nothing: no connection is kept open."""

    async def _ask(self, node: NodeId, questions: Sequence[_Ask], what: str) -> Sequence[Any]:
        draw, saw = self._draw, self._process.world.coverage.saw
        late_us = draw.between(50_000, 350_000) if draw.chance(60) else 0
        again_us = draw.between(1_000, 1_500_000) if draw.chance(80) else 0
        if late_us:
            saw(f"transactions: {what} late")
        if again_us:
            saw(f"transactions: {what} twice")

        def serve(call: Call) -> None:
            _Served(self._world.process_at(int(node)), call, questions)

        answers: Sequence[Any] = await self._process.call(
            int(node), serve, deadline_us=DEADLINE_MS * 1_000, copies=True, extra_us=late_us, copy_us=again_us
        )
        return answers

    def _marking(self, question: MarkerQuestion) -> _Ask:
        marker = question.marker
        header = BatchHeader(
            base_offset=Offset(0),
            leader_epoch=None,
            record_count=1,
            size_bytes=_MARKER_BYTES,
            max_timestamp_ms=0,
            producer=ProducerStamp(*marker.identity, -1),
            attributes=OF_TRANSACTIONS,
            marker=Marker(marker.committed, question.leader_epoch),
        )
        part = ProducePartition(marker.tp, header, MARKERS << VALUE_BITS | self._next_marker())
        return lambda process, number: ProduceArrived(process.now_ms, number, Acks.ALL, DEADLINE_MS, (part,))


_Ask = Callable[[Process, int], Event | None]
"""Makes the event of a request on its arrival, from the request's number; None if no partition can be asked there."""


def _adding(question: AddPartitions) -> _Ask:
    def build(process: Process, number: int) -> Event | None:
        tp = process.core.coordinator_partition(TRANSACTION_STATE, question.transactional_id)
        return None if tp is None else CoordinatorAsked(process.now_ms, number, tp, DEADLINE_MS, question)

    return build


class _Served:
    """The questions of one call, at the node that answers them."""

    def __init__(self, process: Process, call: Call, questions: Sequence[_Ask]) -> None:
        self._process = process
        self._call = call
        self._answers: list[Any] = [None] * len(questions)
        self._open = len(questions)
        for index, ask in enumerate(questions):
            self._begin(index, ask)

    def _begin(self, index: int, ask: _Ask) -> None:
        process = self._process
        number = process.driver.calls.new_id()

        def sink(answer: Any) -> bool:
            self._answers[index] = answer
            self._open -= 1
            if not self._open:
                process.world.network.reply(self._call, tuple(self._answers))
            return True

        process.driver.calls.wait(number, sink)
        event = ask(process, number)
        if event is None:
            sink(Refusal(ErrorCode.NOT_COORDINATOR, "the topic of transactions is not known here"))
        else:
            process.step(event)


# ---- coordinators
# Coordinators in a run, on the partitions of its one topic and with small bounds, and the checks of them.
#
# Invariant (I31): a loaded shard holds the fold of its node's log, from any log start.


TOPIC = "t"
LIMITS = ShardLimits(
    read_bytes=600,
    batch_bytes=200,
    sweep_step_bytes=60,
    sweep_above_bytes=3_000,
    max_batch_bytes=4_096,
    stalled_after_ms=300,
)
READ_S = 0.005
"""Time to read a piece of a log, so that a load can be interrupted."""

LOOK_EVERY = 50
"""The number of events between two checks of a shard."""


class _NoPatterns:
    def compile(self, pattern: str) -> Callable[[str], bool]:
        """Never called: no member subscribes by a pattern."""
        raise ValueError(pattern)


def make(codec: NumberedCodec) -> Coordinators:
    """Create what the nodes of a run coordinate."""
    return Coordinators(codec=codec, machines={TOPIC: _groups}, limits=LIMITS)


def _groups(reports: Reports) -> GroupMachine:
    return GroupMachine(_NoPatterns(), observer=GroupReporting(reports))


def check_coordinators(process: Process, codec: NumberedCodec) -> None:
    """Compare the shards of a process with its logs.

    Raises:
        Broken: I31.
    """
    for tp, shard in process.core._coordinators.shards.items():
        if shard.state is ShardState.LOADING:
            continue
        log = process.disk.logs[tp]
        folded: dict[Any, object] = {}
        for header, number in zip(log.headers, log.values, strict=True):
            if header.next_offset > log.log_start:
                assert isinstance(number, int)
                for record in codec.records(number):
                    folded.pop(record.key, None)
                    if record.value is not None:
                        folded[record.key] = record.value
        if folded != shard.table.values() or folded != _machine_rows(shard):
            raise Broken(
                "I31", f"the coordinator of p{tp.partition} on node {process.node_id} is not what its log says"
            )


def _machine_rows(shard: Shard) -> dict[Any, object]:
    machine = shard.machine
    if isinstance(machine, TransactionMachine):
        return {TransactionalIdKey(name): value for name, value in machine.ids.items()}
    assert isinstance(machine, GroupMachine)
    rows: dict[Any, object] = {key: value for group in machine.groups.values() for key, value in group.rows()}
    return rows | {ProducerFenceKey(producer_id): fence for producer_id, fence in machine.producers.fences.items()}
