"""Coordinators in a run: on the partitions of its one topic, with small bounds, and what is checked of them.

Invariant (I31): what a shard that has loaded holds is the fold of its node's log, from whatever log start there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from strandline.core.coordinator.machine import Reports
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import Shard, ShardLimits, ShardState
from strandline.core.groups.machine import GroupMachine
from strandline.core.groups.records import ProducerFenceKey
from strandline.core.groups.reporting import GroupReporting
from strandline.core.transactions.machine import TransactionMachine
from strandline.core.transactions.records import TransactionalIdKey
from strandline_sim.checks.committed import Broken
from strandline_sim.world.process import Process
from strandline_sim.world.record_codec import NumberedCodec

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
"""What a piece of a log takes to be read, so that a load can be interrupted."""

LOOK_EVERY = 50
"""How many events lie between two looks at a shard."""


class _NoPatterns:
    def compile(self, pattern: str) -> Callable[[str], bool]:
        """Nobody subscribes by a pattern."""
        raise ValueError(pattern)


def make(codec: NumberedCodec) -> Coordinators:
    """What the nodes of a run coordinate."""
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
    fences = machine.producers.fences.items()
    return rows | {ProducerFenceKey(producer_id): fence for producer_id, fence in fences}
