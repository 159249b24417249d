"""How a shard loads: piece by piece, in order, only what is below its epoch (G6, G7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, L, partition_image
from shard_cells import Get, cells_of, code, coordinators, put, shard_of

from strandline.core.coordinator.machine import DecodedRecord
from strandline.core.coordinator.shard import ShardState
from strandline.core.errors import ErrorCode, Refused
from strandline_sim.world.record_codec import IdentityCodec

ALONE = partition_image(replicas=(1,), isr=(1,))


def _written(values: int, *, hold_reads: bool = False, **limits: int) -> Cluster:
    """Node 1 coordinated alone, wrote ``values`` cells and died."""
    cluster = Cluster(1, coordinators=coordinators(**limits), hold_reads=hold_reads)
    cluster.push_all(ALONE)
    cluster.advance(100, settle=True)
    for value in range(values):
        cluster.ask_coordinator(put(**{f"c{value % 5}": value}))
        cluster.settle()
    cluster.restart(L)
    return cluster


def _lead(cluster: Cluster) -> None:
    cluster.push(L, partition_image(replicas=(1,), isr=(1,), epoch=1, version=2))
    cluster.advance(100, settle=True)


def test_a_new_coordinator_has_what_the_last_one_wrote() -> None:
    """The newest value of each cell, after a restart of the process."""
    cluster = _written(12)
    _lead(cluster)
    cluster.settle()

    assert cluster.answered[cluster.ask_coordinator(Get("g"))] == {"c0": 10, "c1": 11, "c2": 7, "c3": 8, "c4": 9}


def test_a_log_is_read_in_pieces() -> None:
    """Each piece is asked for when the one before is folded; until the last one the state is being loaded."""
    cluster = _written(12, hold_reads=True, read_bytes=300)
    _lead(cluster)
    pieces = 0
    while cluster.reads:
        assert shard_of(cluster, L, TP).state is ShardState.LOADING
        refused = cluster.ask_coordinator(Get("g"))
        assert code(cluster.answered[refused]) == "COORDINATOR_LOAD_IN_PROGRESS"
        cluster.hand_over_read()
        pieces += 1

    assert pieces == 6
    assert shard_of(cluster, L, TP).state is ShardState.ACTIVE
    assert len(cells_of(cluster, L, TP).cells) == 5


def test_a_piece_for_an_earlier_reign_is_not_folded() -> None:
    """Leadership lost and regained while a piece was under way: the new shard begins at the beginning."""
    cluster = _written(12, hold_reads=True, read_bytes=300)
    _lead(cluster)
    cluster.push(L, partition_image(replicas=(1,), isr=(1,), epoch=2, version=3))
    assert len(cluster.reads) == 2
    cluster.hand_over_read()
    assert len(cells_of(cluster, L, TP).cells) == 0
    while cluster.reads:
        cluster.hand_over_read()

    assert cells_of(cluster, L, TP).of("g") == {"c0": 10, "c1": 11, "c2": 7, "c3": 8, "c4": 9}


def test_the_bytes_that_were_read_count_as_the_logs() -> None:
    """A loaded shard knows how large its log is, and how much of it is live."""
    cluster = _written(12)
    before = sum(h.size_bytes for h in cluster.disks[L][TP].headers)
    _lead(cluster)
    shard = shard_of(cluster, L, TP)

    assert (shard.log_bytes, shard.table.live_bytes) == (before, 5 * 60)


def test_a_machine_is_excused_when_the_shard_begins_to_serve() -> None:
    """The load is no member's fault: deadlines begin when it is over."""
    cluster = _written(12, hold_reads=True, read_bytes=300)
    _lead(cluster)
    while cluster.reads:
        assert cells_of(cluster, L, TP).excused == []
        cluster.hand_over_read()

    assert cells_of(cluster, L, TP).excused == [cluster.now]


@pytest.mark.parametrize("records", [0, 1])
def test_a_log_of_nothing_is_served_at_once(records: int) -> None:
    """A partition that was never written to needs no read."""
    cluster = _written(records)
    _lead(cluster)

    assert shard_of(cluster, L, TP).state is ShardState.ACTIVE


class _Unreadable(IdentityCodec):
    """A codec of an earlier release than the log's."""

    def decode(self, payload: Any) -> tuple[DecodedRecord, ...]:
        raise Refused(ErrorCode.INVALID_RECORD, "a kind of record that this release does not know")


def test_a_log_that_cannot_be_read_is_reported_and_not_served() -> None:
    """The partition is reported as failed, requests are COORDINATOR_NOT_AVAILABLE, and the node goes on."""
    cluster = _written(3)
    cluster.coordinators = replace(coordinators(), codec=_Unreadable())
    cluster.restart(L)
    _lead(cluster)
    refused = cluster.ask_coordinator(Get("g"))

    assert shard_of(cluster, L, TP).state is ShardState.UNREADABLE
    assert code(cluster.answered[refused]) == "COORDINATOR_NOT_AVAILABLE"
    (failed,) = cluster.emitted(L, "PARTITION_FAILED")
    assert "does not know" in failed.event.reason  # type: ignore[union-attr]
