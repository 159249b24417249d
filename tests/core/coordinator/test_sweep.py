"""How a shard loads and its log stays short, and never loses the newest value of a key (G6, G7, G9, I31)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, F, L, partition_image
from hypothesis import given, settings, strategies as st
from shard_cells import BOTH, Cell, Cells, Get, cells_of, code, coordinating, coordinators, put, shard_of

from strandline.core.coordinator.machine import DecodedRecord, Record
from strandline.core.coordinator.shard import ShardState
from strandline.core.coordinator.sweep import Sweep, Table
from strandline.core.errors import ErrorCode, Refused
from strandline.core.types import Offset
from strandline_sim.world.record_codec import IdentityCodec

SMALL = {"sweep_above_bytes": 1_000, "sweep_step_bytes": 120, "batch_bytes": 120}


def _write(cluster: Cluster, values: range, cells: int = 5) -> None:
    for value in values:
        cluster.ask_coordinator(put(**{f"c{value % cells}": value}))
        cluster.settle()


def folded(cluster: Cluster, node: int) -> dict[Cell, object]:
    """What a log folds to from its log start, read from the disk alone."""
    log = cluster.disks[node][TP]
    state: dict[Cell, object] = {}
    for header, batch in log.batches:
        if header.next_offset > log.log_start:
            for record in batch:
                state.pop(record.key, None)
                if record.value is not None:
                    state[record.key] = record.value
    return state


def test_a_log_that_grew_is_swept_and_its_front_cut_off() -> None:
    """The log start moves to where the sweep began, on the leader and on the follower, and the state is unchanged."""
    cluster = coordinating(**SMALL)
    _write(cluster, range(40))
    before = cells_of(cluster, L, TP).of("g")
    cluster.advance(1_000, settle=True)
    assert cluster.log(L).log_start_offset == 40
    assert cluster.log(F).log_start_offset == 40
    assert shard_of(cluster, L, TP).log_bytes < 1_000
    assert folded(cluster, L) == folded(cluster, F) == cells_of(cluster, L, TP).cells
    assert cells_of(cluster, L, TP).of("g") == before


def test_a_log_that_is_mostly_live_is_not_swept() -> None:
    """Size alone is no reason: the log must be four times as large as what it holds."""
    cluster = coordinating(**SMALL)
    _write(cluster, range(40), cells=40)
    cluster.advance(1_000, settle=True)

    assert cluster.log(L).log_start_offset == 0


def test_nothing_is_cut_off_before_the_sweep_is_committed() -> None:
    """While the follower lacks the last swept record, the front stays (R56)."""
    cluster = coordinating(**SMALL)
    _write(cluster, range(40))
    cluster.advance(1_000)

    assert cluster.log(L).log_start_offset == 0, "I31: the front was cut off while its replacement may be undone"
    assert shard_of(cluster, L, TP).sweep is not None


def test_a_deleted_key_needs_no_tombstone() -> None:
    """After the trim a deleted key is neither in the log nor in what it folds to."""
    cluster = coordinating(**SMALL)
    _write(cluster, range(40))
    cluster.ask_coordinator(put(c0=None))
    cluster.settle()
    cluster.advance(1_000, settle=True)
    swept = [
        record.key.name
        for header, batch in cluster.disks[L][TP].batches
        if header.base_offset >= 41
        for record in batch
    ]
    assert cluster.log(L).log_start_offset == 41
    assert "c0" not in swept
    assert set(cells_of(cluster, L, TP).of("g")) == {"c1", "c2", "c3", "c4"}


def test_a_new_leader_after_a_half_sweep_has_everything() -> None:
    """The one that was elected folds the same state, and may sweep on its own."""
    cluster = coordinating(**SMALL)
    _write(cluster, range(40))
    cluster.advance(100, settle=True)
    before = cells_of(cluster, L, TP).of("g")
    assert shard_of(cluster, L, TP).sweep is not None
    for node in (F, L):
        cluster.push(node, partition_image(leader=2, epoch=1, version=2, min_isr=2))
    cluster.settle()
    cluster.advance(2_000, settle=True)

    assert cells_of(cluster, F, TP).of("g") == before
    assert cluster.log(F).log_start_offset >= 40
    assert folded(cluster, L) == folded(cluster, F) == cells_of(cluster, F, TP).cells


def test_a_key_that_was_written_since_is_not_written_again() -> None:
    """A sweep leaves out what already lies at or above its first offset."""
    table = Table()
    for offset, name in enumerate("abc"):
        table.fold(Record(Cell("g", name), offset), 10, Offset(offset))
    sweep = Sweep(table, Offset(3))
    table.fold(Record(Cell("g", "b"), 9), 10, Offset(3))
    written: list[str] = []

    def append(batch: tuple[Record, ...]) -> None:
        written.extend(record.key.name for record in batch if isinstance(record.key, Cell))

    while not sweep.is_written:
        sweep.step(10, 10, append)
    assert written == ["a", "c"]


def test_writes_are_amplified_by_a_third_at_most() -> None:
    """What sweeps append is at most 0.34 of what was written, where live records are a quarter of the log or less."""
    cluster = coordinating(sweep_above_bytes=6_000, sweep_step_bytes=1_200, batch_bytes=1_200)
    wanted = 0
    for round_ in range(60):
        for value in range(10):
            cluster.ask_coordinator(put(**{f"c{value}": round_}))
            wanted += 121
        cluster.settle()
        cluster.advance(100, settle=True)
    appended = sum(h.size_bytes for h in cluster.disks[L][TP].headers)
    assert cluster.log(L).log_start_offset > 0
    assert appended / wanted <= 1.34


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 7), st.one_of(st.none(), st.integers(0, 99))),
        st.tuples(st.just("tick"), st.just(0), st.none()),
        st.tuples(st.just("settle"), st.just(0), st.none()),
        st.tuples(st.just("elect"), st.integers(1, 2), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_live_state_is_the_fold_of_the_log_from_any_log_start(events: list[tuple[str, int, int | None]]) -> None:
    """I31: after any history of writes, ticks, elections and sweeps, on the leader and the next leader."""
    cluster = Cluster(1, 2, coordinators=coordinators(sweep_above_bytes=300, sweep_ratio=2, sweep_step_bytes=120))
    cluster.push_all(BOTH)
    cluster.settle()
    leader, epoch = L, 0
    for what, number, value in events:
        if what == "put":
            cluster.ask_coordinator(put(f"g{number % 3}", **{f"c{number}": value}), node=leader)
        elif what == "tick":
            cluster.advance(100)
        elif what == "settle":
            cluster.settle()
        else:
            leader, epoch = (L, F)[number - 1], epoch + 1
            image = partition_image(leader=number, epoch=epoch, version=epoch + 1, min_isr=2)
            cluster.push_all(image)
        machine = cells_of(cluster, leader, TP)
        assert folded(cluster, leader) == machine.cells == shard_of(cluster, leader, TP).table.values()
    cluster.settle()
    cluster.advance(2_000, settle=True)

    assert isinstance(shard_of(cluster, leader, TP).machine, Cells)
    assert folded(cluster, L) == folded(cluster, F) == cells_of(cluster, leader, TP).cells
    request = cluster.ask_coordinator(Get("g0"), node=leader)
    cluster.settle()
    assert cluster.answered[request] == cells_of(cluster, leader, TP).of("g0")


# How a shard loads: piece by piece, in order, only what is below its epoch (G6, G7).


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
