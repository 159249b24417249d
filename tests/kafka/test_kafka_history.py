"""Run A deed by deed: what was done to a real Kafka cluster, against the events that its metadata log became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from kafka_export import Row, files_of, rows_of, source_of
from run_a_files import CLUSTER, deed_ms

from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify
from strandline_kafka.metadata.importing import Assumed, Import, Imported, cluster_of
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.passage import Window


def import_of(roots: Iterable[Path], out: Path, **options: Any) -> Imported:
    copies = [open_copy(root) for root in roots]
    return Import(copies, cluster_of(copies, None), **options).write(LocalDirectory(out))


@pytest.fixture
def rows(run_a_node: Any, tmp_path: Path) -> list[Row]:
    """The events of run A, from the logs of all three nodes."""
    import_of([run_a_node(node) for node in (1, 2, 3)], tmp_path / "out")
    return rows_of(tmp_path / "out")


def between(rows: list[Row], start_ms: int, end_ms: int, event_type: str) -> list[Row]:
    return [r for r in rows if r["event_type"] == event_type and start_ms * 1000 <= r["ts_wall_us"] < end_ms * 1000]


def changes(rows: list[Row]) -> list[tuple[str, list[int], list[int], str | None, str]]:
    """ISR changes as partition, who left, who came, cause, initiator."""
    return [
        (
            f"{row['topic']}-{row['partition']}",
            [member["replica_id"] for member in row["removed"]],
            [member["replica_id"] for member in row["added"]],
            row.get("cause"),
            row["initiator"],
        )
        for row in rows
    ]


def sessions(rows: list[Row]) -> list[tuple[int, str]]:
    return [(row["subject_node_id"], row["phase"]) for row in rows if row["event_type"] == "NODE_SESSION"]


def test_run_a_becomes_so_many_events_of_each_type(rows: list[Row]) -> None:
    """54 partition changes become 51 changes of an ISR and 18 of a leader; nothing needs a sample."""
    found = Counter(row["event_type"] for row in rows)
    del found["EXPORT_HEARTBEAT"]
    assert found == {
        "ISR_CHANGE": 51,
        "LEADER_CHANGE": 25,
        "CONFIG_CHANGE": 10,
        "STATE_SNAPSHOT": 13,
        "NODE_SESSION": 15,
        "CONTROLLER_DECISION": 10,
    }


def test_the_topics_were_created(rows: list[Row]) -> None:
    """Seven partitions begin with their replicas, their minimum and the preferred leader, within 200 ms of the deed."""
    start = deed_ms("create topics")
    created = between(rows, start, start + 200, "CONFIG_CHANGE")
    assert [(f"{r['topic']}-{r['partition']}", r["replicas"], r["min_isr"], r["topic_created"]) for r in created] == [
        ("orders-0", [1, 2, 3], 2, True),
        ("orders-1", [2, 3, 1], 2, True),
        ("orders-2", [3, 1, 2], 2, True),
        ("payments-0", [1, 3, 2], 2, True),
        ("payments-1", [2, 1, 3], 2, True),
        ("audit-0", [3, 2], 1, True),
        ("scratch-0", [3, 1, 2], 2, True),
    ]
    leaders = between(rows, start, start + 200, "LEADER_CHANGE")
    assert [(r["old_leader"], r["new_leader"], r["reason"]) for r in leaders] == [
        (-1, r["replicas"][0], "created") for r in created
    ]


def test_a_stopped_node_is_removed_for_lag_and_comes_back(rows: list[Row]) -> None:
    """While node 1 stood still its leaders removed it; when it went on, it removed two healthy followers itself."""
    found = changes(between(rows, deed_ms("SIGSTOP"), deed_ms("kill -9"), "ISR_CHANGE"))
    assert found == [
        ("orders-2", [1], [], "lag", "leader"),
        ("payments-1", [1], [], "lag", "leader"),
        ("orders-1", [1], [], "lag", "leader"),
        ("orders-2", [], [1], "catch_up", "leader"),
        ("orders-1", [], [1], "catch_up", "leader"),
        ("payments-1", [], [1], "catch_up", "leader"),
        ("payments-0", [2], [], "lag", "leader"),
        ("orders-0", [3], [], "lag", "leader"),
        ("payments-0", [], [2], "catch_up", "leader"),
        ("orders-0", [], [3], "catch_up", "leader"),
    ]


def test_a_stopped_node_was_never_fenced(rows: list[Row]) -> None:
    """Seven seconds were less than the session, so that no session event lies between the stop and the kill."""
    assert between(rows, deed_ms("SIGSTOP"), deed_ms("kill -9"), "NODE_SESSION") == []


def test_a_killed_node_is_removed_for_lag_then_fenced(rows: list[Row]) -> None:
    """Leaders removed node 2 after the lag time; where it led, it left by its fence, together with the elections."""
    start, end = deed_ms("kill -9"), deed_ms("start process", node=2)
    assert changes(between(rows, start, end, "ISR_CHANGE")) == [
        ("audit-0", [2], [], "lag", "leader"),
        ("orders-2", [2], [], "lag", "leader"),
        ("payments-0", [2], [], "lag", "leader"),
        ("orders-0", [2], [], "lag", "leader"),
        ("scratch-0", [2], [], "node_fenced", "controller"),
        ("orders-1", [2], [], "node_fenced", "controller"),
        ("payments-1", [2], [], "node_fenced", "controller"),
    ]
    elected = between(rows, start, end, "LEADER_CHANGE")
    assert [(r["topic"], r["old_leader"], r["new_leader"], r["election_type"], r["eligible_set"]) for r in elected] == [
        ("orders", 2, 3, "isr", [1, 3]),
        ("payments", 2, 1, "isr", [1, 3]),
    ]
    (fence,) = between(rows, start, end, "NODE_SESSION")
    assert (fence["subject_node_id"], fence["phase"], fence["meta_offset"]) == (2, "fence", 359)
    assert 8_000 <= fence["ts_wall_us"] // 1000 - start <= 9_000


def test_a_removal_that_may_have_been_a_proposal_says_so(rows: list[Row]) -> None:
    """The removal in front of a fence's elections is counted to the fence, and marked as not distinguishable."""
    marked = [row for row in rows if row["ext"].get("ambiguous")]
    assert [(row["topic"], row["meta_offset"]) for row in marked] == [("scratch", 356)]


def test_a_restarted_node_registers_and_comes_back(rows: list[Row]) -> None:
    """Node 2 registers, is unfenced, and joins all seven ISRs before the client saw them full."""
    start, end = deed_ms("start process", node=2), deed_ms("delete topic")
    assert sessions(between(rows, start, end, "NODE_SESSION")) == [(2, "register"), (2, "unfence")]
    back = changes(between(rows, start, end, "ISR_CHANGE"))
    assert sorted(back) == [
        (name, [], [2], "catch_up", "leader")
        for name in ("audit-0", "orders-0", "orders-1", "orders-2", "payments-0", "payments-1", "scratch-0")
    ]


def test_a_deleted_topic_ends(rows: list[Row]) -> None:
    """The deletion of scratch is one event, under its name, within 50 ms; no row of it comes later."""
    start = deed_ms("delete topic")
    (gone,) = between(rows, start, start + 50, "CONFIG_CHANGE")
    assert (gone["topic"], gone["partition"], gone["topic_deleted"]) == ("scratch", 0, True)
    assert max(row["seq"] for row in rows if row.get("topic") == "scratch") == gone["seq"]


def test_a_lowered_minimum_is_told_for_each_partition(rows: list[Row]) -> None:
    """Both partitions of payments have min ISR 1 from then on."""
    start = deed_ms("alter config")
    found = between(rows, start, start + 100, "CONFIG_CHANGE")
    assert [(row["topic"], row["partition"], row["min_isr"]) for row in found] == [
        ("payments", 0, 1),
        ("payments", 1, 1),
    ]


def test_a_controlled_shutdown_is_told_from_a_crash(rows: list[Row]) -> None:
    """Node 1 leaves five ISRs and hands over three partitions, all by its shutdown, before it is fenced once."""
    start, end = deed_ms("SIGTERM"), deed_ms("start process", node=1)
    found = changes(between(rows, start, end, "ISR_CHANGE"))
    assert [(name, gone, cause) for name, gone, _, cause, _ in found] == [
        (name, [1], "controlled_shutdown") for name in ("orders-0", "orders-2", "orders-1", "payments-0", "payments-1")
    ]
    moved = between(rows, start, end, "LEADER_CHANGE")
    assert [(row["old_leader"], row["new_leader"], row["reason"]) for row in moved] == [
        (1, 2, "controlled_shutdown"),
        (1, 3, "controlled_shutdown"),
        (1, 2, "controlled_shutdown"),
    ]
    assert sessions(between(rows, start, end, "NODE_SESSION")) == [(1, "fence")]


def test_preferred_elections_change_the_leader_alone(rows: list[Row]) -> None:
    """Three partitions go back to their first replica, and no ISR changes."""
    start = deed_ms("elect preferred leaders")
    found = between(rows, start, start + 1000, "LEADER_CHANGE")
    assert [(r["topic"], r["partition"], r["new_leader"], r["election_type"]) for r in found] == [
        ("orders", 0, 1, "preferred"),
        ("orders", 1, 2, "preferred"),
        ("payments", 0, 1, "preferred"),
    ]
    assert between(rows, start, start + 1000, "ISR_CHANGE") == []


def test_the_last_stop_leaves_every_partition_without_a_leader(rows: list[Row]) -> None:
    """An empty ISR with leader -1 and an ELR is a state, not damage; two shutdowns of one batch are distinguished."""
    end = between(rows, deed_ms("end"), deed_ms("end") + 3_600_000, "ISR_CHANGE")
    last = {(row["topic"], row["partition"]): (row["new_isr"], row["elr"]) for row in end}
    assert last == {
        ("audit", 0): ([], [2]),
        ("orders", 0): ([], [1, 2]),
        ("orders", 1): ([], [1, 2]),
        ("orders", 2): ([], [1, 2]),
        ("payments", 0): ([], [1]),
        ("payments", 1): ([], [1]),
    }
    assert {row["cause"] for row in end} == {"controlled_shutdown"}
    of_first_batch = [row["removed"][0]["replica_id"] for row in end if row["meta_offset"] < 1648]
    assert of_first_batch == [3] * 6 + [2] * 6


def test_what_kafka_does_not_record_is_null(rows: list[Row]) -> None:
    """No row has a position, a time of a fetch or of a heartbeat, and no dataset of samples exists."""
    for row in rows:
        assert row.keys().isdisjoint({"hw", "leader_leo", "leo", "last_heartbeat_us", "log_start", "lag_time_max_ms"})
        for member in (*row.get("removed", ()), *row.get("added", ())):
            assert [value for key, value in member.items() if key != "replica_id"] == [None, None, None]


def test_the_epochs_that_were_replayed_equal_every_snapshot(run_a_node: Any, tmp_path: Path) -> None:
    """Three snapshots lie on the way, and the replayed state equals each."""
    done = import_of([run_a_node(node) for node in (1, 2, 3)], tmp_path / "out")
    assert (done.snapshots_equal, done.repeated_registrations, done.unknown.total()) == (3, 6, 0)


def test_the_export_is_complete_and_ended(run_a_node: Any, tmp_path: Path) -> None:
    """`strandline export verify` finds nothing missing, nothing wrong, and the end reported."""
    import_of([run_a_node(node) for node in (1, 2)], tmp_path / "out")
    found = verify(LocalDirectory(tmp_path / "out"), CLUSTER)
    assert found.is_sound
    assert [one.completeness for one in found.incarnations] == [Completeness.COMPLETE]


def test_the_same_logs_become_the_same_bytes(run_a_node: Any, tmp_path: Path) -> None:
    """Two imports write the same files with the same content, whatever the order of the copies."""
    roots = [run_a_node(node) for node in (1, 2, 3)]
    import_of(roots, tmp_path / "one")
    import_of(reversed(roots), tmp_path / "two")
    one, two = files_of(tmp_path / "one"), files_of(tmp_path / "two")
    assert one == two
    assert len(one) == 5


def test_assumed_settings_fill_what_the_log_does_not_tell(run_a_node: Any, tmp_path: Path) -> None:
    """A lag time that was assumed stands in the creation of each partition, and in the source of the export."""
    import_of([run_a_node(1), run_a_node(2)], tmp_path / "out", assumed=Assumed(lag_time_max_ms=4000))
    lag_times = [row["lag_time_max_ms"] for row in rows_of(tmp_path / "out") if "lag_time_max_ms" in row]
    assert lag_times == [4000] * 7
    source = source_of(tmp_path / "out")
    assert source["assumed"] == {"min.insync.replicas": None, "replica.lag.time.max.ms": 4000}


def test_a_window_begins_with_every_state_and_ends_in_time(run_a_node: Any, tmp_path: Path) -> None:
    """An import of the time of one fault has its events as the whole import does, states before and nothing behind."""
    start_us, end_us = deed_ms("SIGSTOP") * 1000, deed_ms("kill -9") * 1000
    roots = [run_a_node(1), run_a_node(2)]
    import_of(roots, tmp_path / "whole")
    import_of(roots, tmp_path / "part", window=Window(start_us, end_us))
    part = rows_of(tmp_path / "part")
    assert {row["ts_wall_us"] for row in part if row["ts_wall_us"] < start_us or row["ts_wall_us"] >= end_us} == set()
    first = part[:7]
    assert {(row["event_type"], row["ts_wall_us"]) for row in first} == {("STATE_SNAPSHOT", start_us)}
    assert {(row["topic"], row["partition"]) for row in first} == {
        (row["topic"], row["partition"]) for row in rows_of(tmp_path / "whole") if row["event_type"] == "LEADER_CHANGE"
    }
    wanted = ("ISR_CHANGE", "LEADER_CHANGE", "NODE_SESSION")
    assert changes(between(part, 0, 1 << 50, "ISR_CHANGE")) == changes(
        between(rows_of(tmp_path / "whole"), deed_ms("SIGSTOP"), deed_ms("kill -9"), "ISR_CHANGE")
    )
    assert [row["event_type"] for row in part if row["event_type"] in wanted] == ["ISR_CHANGE"] * 10
    found = verify(LocalDirectory(tmp_path / "part"), CLUSTER)
    assert [one.completeness for one in found.incarnations] == [Completeness.COMPLETE]
