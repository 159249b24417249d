"""Moves of replicas on worked histories: S28, and that no other statistic takes them for trouble."""

from __future__ import annotations

from typing import Any

S = 1_000_000


def test_replicas_that_are_added_are_not_missed(histories: Any) -> None:
    """Under-replicated is what lacks original replicas, and target replicas once the move has ended; no time of a move
    is unknown."""
    rows = histories.rows("s10", "moves")

    assert [(row.full_us // S, row.under_replicated_us // S) for row in rows] == [(55, 5), (20, 40), (60, 0), (60, 0)]
    assert [row.coverage for row in rows] == [1, 1, 1, 1]


def test_events_of_moves_fill_the_partition_epochs(histories: Any) -> None:
    """A partition epoch that a move began, cancelled or ended is no lost transition."""
    assert [row.n_gap for row in histories.rows("s08", "moves")] == [0, 0, 0, 0]


def test_a_move_is_no_shrink_and_no_expand(histories: Any) -> None:
    """Only the replica that fell behind after the move has left and come back."""
    rows = histories.rows("s08", "moves")

    assert [(row.shrinks, row.expands, row.removals, row.adds) for row in rows] == [(1, 1, 1, 1), *[(0, 0, 0, 0)] * 3]


def test_a_move_removes_nobody(histories: Any) -> None:
    """Removals by cause, detection delays and incidents have the lag of node 6 alone."""
    (cause,) = [row for row in histories.rows("s09", "moves") if row.removals]
    (delay,) = [row for row in histories.rows("s13", "moves") if row.removals]
    (incident,) = histories.rows("s17", "moves")

    assert (cause.replica_id, cause.removal_cause, cause.removals, delay.removals) == (6, "lag_unknown", 1, 1)
    assert (incident.began_us, incident.kind, incident.removals) == (45 * S, "unplanned", 1)


def test_a_first_entry_by_a_move_is_no_return(histories: Any) -> None:
    """Node 6 joined 15 s before it fell behind, which is no flap; its only stay outside is the one after that."""
    (flap,) = [row for row in histories.rows("s15", "moves") if row.removals]
    stays = {(row.partition, row.replica_id): row for row in histories.rows("s12", "moves") if row.replica_id}

    assert (flap.replica_id, flap.removals, flap.flaps) == (6, 1, 0)
    assert {key: (row.rejoins, row.reassigned, row.out_us // S) for key, row in stays.items()} == {
        (0, 6): (1, 0, 5),
        (1, 1): (0, 1, 40),
    }


def test_an_epoch_under_the_same_leader_is_no_change_of_leader(histories: Any) -> None:
    """The move that took the leader away changed it, without a shrink near it or a fence; the other one did not."""
    rows = histories.rows("s16", "moves")
    failovers = histories.rows("s19", "moves")

    assert [(row.leader_changes, row.unrelated, row.shrinks) for row in rows] == [(1, 1, 1), *[(0, 0, 0)] * 3]
    assert [(row.leader_changes, row.failovers) for row in failovers] == [(1, 0), (0, 0), (0, 0), (0, 0)]


# S28: moves of replicas.


def test_a_move_waits_runs_and_ends(histories: Any) -> None:
    """Counted when it ends, with the time in the queue; a second target goes on with the move; an end is not the end of
    the window."""
    rows = histories.rows("s28", "moves")

    assert [(row.completed, row.cancelled, row.unfinished) for row in rows] == [
        (1, 0, 0),
        (1, 1, 0),
        (0, 0, 1),
        (0, 0, 1),
    ]
    assert [(row.queued_us // S, row.running_us // S) for row in rows] == [(5, 20), (0, 25), (0, 30), (10, 30)]
    assert [row.max_us and row.max_us // S for row in rows] == [25, 20, None, None]


def test_what_a_move_copied_is_what_leaders_sent_to_its_replicas(histories: Any) -> None:
    """Reports that overlap its run, of the leader before and after; none are there of partitions 1 to 3, so that theirs
    is not known."""
    assert [row.copied_bytes for row in histories.rows("s28", "moves")] == [7_200, None, None, None]


def test_throttled_time_is_what_leaders_and_replicas_report(histories: Any) -> None:
    """2 s by the leader and 4.5 s by a replica that held itself back; 0.8 s of after the end are none of the move's."""
    assert [row.throttled_us for row in histories.rows("s28", "moves")] == [6_500_000, None, None, None]


def test_a_record_that_begins_inside_a_move_misses_no_added_replica(histories: Any) -> None:
    """A snapshot names the original replicas: all that is missed is replica 2 for 15 s."""
    (row,) = histories.rows("s10", "inside_move")
    (changes,) = histories.rows("s08", "inside_move")

    assert [(row.full_us // S, row.under_replicated_us // S)] == [(45, 15)]
    assert (changes.shrinks, changes.expands) == (1, 0)


def test_a_move_waited_for_the_replica_that_joined_last(histories: Any) -> None:
    """Node 6 joined partition 0 last; the end of that move made room on nodes 2 and 6 for partition 3."""
    rows = histories.rows("s28", "moves")

    assert [row.waited_for for row in rows] == [{6: 1}, {4: 1}, None, None]
    assert [row.queued_for for row in rows] == [None, None, None, {2: 1, 6: 1}]


def test_a_move_is_cut_by_windows_and_ends_in_one(histories: Any) -> None:
    """Of partition 0 in steps of 20 s: 5 s queued and 10 s running, then 10 s running and the completion."""
    rows = histories.rows("s28", "moves", step_ms=20_000)[:3]

    assert [(row.queued_us // S, row.running_us // S, row.completed, row.unfinished) for row in rows] == [
        (5, 10, 0, 1),
        (0, 10, 1, 0),
        (0, 0, 0, 0),
    ]
    assert [row.copied_bytes for row in rows] == [1_000, 6_200, 0]
