"""A state machine small enough to see through: named cells of scopes, each with a number.

It stands on the shard exactly as groups do, so what is shown of its answers and its log holds for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster_of_cores import Cluster
from core_builders import partition_image

from strandline.core.coordinator.machine import Batch, Context, Decision, Record
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import Shard, ShardLimits
from strandline.core.errors import Refusal
from strandline.core.log.effects import Effect, SendTxnMarkers
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import LeaderEpoch, TopicPartition
from strandline_sim.world.record_codec import IdentityCodec

BOTH = partition_image(replicas=(1, 2), isr=(1, 2), min_isr=2)

TOPIC = "lines"
"""The name that every topic of `core_builders.metadata` has."""

ASKED_OF_OTHERS = SendTxnMarkers(TopicPartition("x", 0), LeaderEpoch(0), ())
"""What the machine wants of others when a telling `Put` is committed."""


@dataclass(frozen=True)
class Cell:
    scope: str
    name: str


@dataclass(frozen=True)
class Put:
    """Sets cells of a scope in one batch; None deletes one. ``fenced``: the answer needs a read barrier;
    ``shown``: others hear of it when it is committed."""

    scope: str
    values: tuple[tuple[str, int | None], ...]
    fenced: bool = False
    shown: bool = False


@dataclass(frozen=True)
class Get:
    """Reads a scope, or all of them; ``fenced`` as above."""

    scope: str | None
    fenced: bool = False


class Cells:
    """The machine. ``due`` is what its next tick writes."""

    def __init__(self) -> None:
        self.cells: dict[Cell, int] = {}
        self.due: list[Decision] = []
        self.excused: list[int] = []
        self.takes: list[object] = []
        self.answers: list[object] = []
        self.heard_of: list[object] = []
        self.unix_ms: list[int] = []

    def apply(self, record: Record) -> None:
        assert isinstance(record.key, Cell)
        if record.value is None:
            self.cells.pop(record.key, None)
        else:
            assert isinstance(record.value, int)
            self.cells[record.key] = record.value

    def decide(self, request: object, context: Context) -> Decision:
        self.unix_ms.append(context.unix_ms)
        if isinstance(request, Get):
            return Decision(answer=self.of(request.scope), scope=request.scope, barrier=request.fenced)
        return Decision(
            batches=(batch_of(request.scope, *request.values),),
            answer="put",
            scope=request.scope,
            barrier=request.fenced,
            taken=request,
            answered=request,
            committed=request if request.shown else None,
        )

    def of(self, scope: str | None) -> dict[str, int]:
        """Name to number."""
        return {key.name: value for key, value in self.cells.items() if scope in (None, key.scope)}

    def tick(self, context: Context) -> Sequence[Decision]:
        due, self.due = self.due, []
        return due

    def computed(self, result: object, context: Context) -> Decision:
        assert isinstance(result, Decision)
        return result

    def committed(self, note: object, context: Context) -> Sequence[Effect]:
        return (ASKED_OF_OTHERS,)

    def heard(self, answer: object, context: Context) -> Sequence[Decision]:
        self.heard_of.append(answer)
        return [Decision(batches=(batch_of("heard", ("answers", len(self.heard_of))),), scope="heard")]

    def taken(self, note: object, now_ms: int) -> None:
        self.takes.append(note)

    def answered(self, note: object, now_ms: int) -> None:
        self.answers.append(note)

    def excuse(self, context: Context) -> None:
        self.excused.append(context.now_ms)


def batch_of(scope: str, *values: tuple[str, int | None]) -> Batch:
    return tuple(Record(Cell(scope, name), value) for name, value in values)


def put(scope: str = "g", *, fenced: bool = False, shown: bool = False, **values: int | None) -> Put:
    return Put(scope, tuple(values.items()), fenced, shown)


def coordinators(**limits: int) -> Coordinators:
    """The parts of a node that coordinates cells."""
    return Coordinators(codec=IdentityCodec(), machines={TOPIC: lambda _: Cells()}, limits=ShardLimits(**limits))


def coordinating(*, streams: bool = False, timings: NodeTimings | None = None, **limits: int) -> Cluster:
    """Node 1 leads and coordinates, node 2 follows; both have ticked once."""
    cluster = Cluster(1, 2, coordinators=coordinators(**limits), streams=streams, timings=timings)
    cluster.push_all(BOTH)
    cluster.settle()
    cluster.advance(100, settle=True)
    return cluster


def shard_of(cluster: Cluster, node: int, tp: TopicPartition) -> Shard:
    return cluster.cores[node]._coordinators.shards[tp]


def cells_of(cluster: Cluster, node: int, tp: TopicPartition) -> Cells:
    machine: Any = shard_of(cluster, node, tp).machine
    assert isinstance(machine, Cells)
    return machine


def code(answer: object) -> str:
    """The name of a refusal's code, or the answer itself if it is none."""
    return answer.code.name if isinstance(answer, Refusal) else repr(answer)
