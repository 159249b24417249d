"""Several copies of a metadata log as one, what is committed of it, and where a history may begin."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from kafka_export import rows_of, source_of
from metadata_log_bytes import (
    FENCED,
    HEAD,
    NO_OP,
    START_MS,
    TOPIC,
    batch,
    broker,
    change,
    control,
    feature,
    framed,
    ids,
    node,
    partition,
    registration,
    setting,
    text,
    topic,
    uvarint,
    voters,
)

from strandline.export.destination import LocalDirectory
from strandline.export.verify import verify
from strandline_kafka.metadata import merging
from strandline_kafka.metadata.importing import Assumed, Import, Imported, cluster_of
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.wire import Unreadable


def imported(roots: Iterable[Path], out: Path, **options: Any) -> tuple[Imported, list[dict[str, Any]]]:
    done = Import([open_copy(root) for root in roots], "c", **options).write(LocalDirectory(out))
    return done, [row for row in rows_of(out) if row["event_type"] != "EXPORT_HEARTBEAT"]


def test_a_single_voter_proves_its_whole_log(tmp_path: Path) -> None:
    """What the only voter of a quorum holds is committed."""
    done, _ = imported([node(tmp_path, 1, *HEAD)], tmp_path / "out")
    assert (done.proof.end_offset, done.proof.proved_end) == (5, 5)


def test_one_copy_of_three_voters_proves_nothing(tmp_path: Path) -> None:
    """One of three may hold what is taken back: its log is left out, unless its tail is trusted."""
    root = node(tmp_path, 1, voters(0, 1, 2, 3), *HEAD[1:])
    done, rows = imported([root], tmp_path / "out")
    trusted, all_rows = imported([root], tmp_path / "trusted", trust_tail=True)
    assert (done.proof.proved_end, rows) == (0, [])
    assert (trusted.proof.proved_end, len(all_rows)) == (5, 4)


def test_what_the_quorum_calls_committed_is_proved(tmp_path: Path) -> None:
    """The quorum's high watermark proves one copy up to the last whole batch below it."""
    root = node(tmp_path, 1, voters(0, 1, 2, 3), *HEAD[1:], batch(5, NO_OP, NO_OP))
    ends = [imported([root], tmp_path / f"out{hw}", committed_below=hw)[0].proof.proved_end for hw in (1, 5, 6, 7, 100)]
    assert ends == [1, 5, 5, 7, 7]


def test_an_observer_proves_nothing(tmp_path: Path) -> None:
    """A copy of a node that is no voter does not count for the majority, and neither does the same node twice."""
    content = (voters(0, 1, 2, 3), *HEAD[1:])
    roots = [node(tmp_path, 1, *content), node(tmp_path, 9, *content), node(tmp_path / "again", 1, *content)]
    done, _ = imported(roots, tmp_path / "out")
    assert done.proof.proved_end == 0


def test_the_higher_epoch_is_what_was_committed(tmp_path: Path) -> None:
    """A copy with a batch of a deposed controller is cut where it differs, and that is said."""
    head = (voters(0, 1, 2, 3), *HEAD[1:])
    newer = batch(5, change(t0=ids(1, 2)), epoch=2)
    stale = batch(5, change(t0=ids(1, 3)), epoch=1)
    roots = [node(tmp_path, 1, *head, newer), node(tmp_path, 2, *head, newer), node(tmp_path, 3, *head, stale)]
    done, rows = imported(roots, tmp_path / "out")
    assert [row["new_isr"] for row in rows if row["event_type"] == "ISR_CHANGE"] == [[1, 2]]
    assert [note.partition(": ")[2] for note in done.proof.notes] == [
        "from offset 5 on it holds what was never committed; left out"
    ]


def test_two_batches_of_one_epoch_are_a_contradiction(tmp_path: Path) -> None:
    """No quorum has two batches of one epoch at one offset: one copy is damaged, or of another cluster."""
    roots = [
        node(tmp_path, 1, *HEAD, batch(5, change(t0=ids(1, 2)))),
        node(tmp_path, 2, *HEAD, batch(5, change(t0=ids(1, 3)))),
    ]
    with pytest.raises(Unreadable, match="hold different batches of epoch 1 at offset 5"):
        imported(roots, tmp_path / "out")


def test_offsets_that_no_copy_has_are_named(tmp_path: Path) -> None:
    """A hole between two copies is not stepped over."""
    roots = [node(tmp_path, 1, *HEAD), node(tmp_path, 2, batch(9, NO_OP), first=9)]
    with pytest.raises(Unreadable, match="offsets 5 to 8 are in no copy"):
        imported(roots, tmp_path / "out")


def test_a_log_without_its_beginning_knows_no_epoch(tmp_path: Path) -> None:
    """A change of a partition that no record before described is a counted gap, never a state with invented epochs."""
    root = node(tmp_path, 1, voters(40, 1), batch(41, change(t0=ids(1, 2))), first=40)
    done, rows = imported([root], tmp_path / "out")
    assert done.unknown.total() == 1
    assert [row["event_type"] for row in rows] == ["CONTROLLER_DECISION", "EXPORT_GAP"]


def test_voters_that_are_added_are_asked_from_then_on(tmp_path: Path) -> None:
    """Behind a change of a dynamic quorum from one voter to three, one copy proves nothing any more (KIP-853)."""
    one = struct.pack(">i", 1) + bytes(16) + uvarint(1) + struct.pack(">hh", 0, 1) + b"\0\0"
    added = [one.replace(struct.pack(">i", 1), struct.pack(">i", node), 1) for node in (1, 2, 3)]
    value = struct.pack(">h", 0) + uvarint(4) + b"".join(added) + b"\0"
    root = node(tmp_path, 1, *HEAD, control(5, 6, value), batch(6, NO_OP))
    done = Import([open_copy(root)], "c").result.proof
    assert (done.proved_end, done.end_offset, done.voters) == (5, 7, {1, 2, 3})


def test_an_unknown_record_is_a_gap_of_the_export(tmp_path: Path) -> None:
    """A kind that is not known leaves out one number, which the gap explains."""
    done, rows = imported([node(tmp_path, 1, *HEAD, batch(5, framed(90, 0, b"??")))], tmp_path / "out")
    (gap,) = (row for row in rows if row["event_type"] == "EXPORT_GAP")
    assert done.unknown == {"record 90 version 0": 1}
    assert (gap["dropped_first_seq"], gap["dropped_by_type"]) == (gap["seq"] - 1, {"record 90 version 0": 1})


def test_a_snapshot_that_differs_from_the_log_is_refused(tmp_path: Path, run_a_node: Any) -> None:
    """A replayed state that a snapshot contradicts ends the import with the file and the first differences."""
    root = run_a_node(1)
    folder = root / "__cluster_metadata-0"
    (snapshot,) = open_copy(root).snapshots
    snapshot.path.rename(folder / "00000000000000000300-0000000001.checkpoint")
    with pytest.raises(
        Unreadable, match=r"the log up to offset 300 does not amount to it: topic .*: orders by the log"
    ):
        imported([root], tmp_path / "out", trust_tail=True)


def test_a_log_begins_with_its_snapshot(tmp_path: Path, run_a_node: Any) -> None:
    """A log whose beginning was deleted goes on from the snapshot that ends where it begins."""
    root = run_a_node(1)
    folder = root / "__cluster_metadata-0"
    path = folder / "00000000000000000000.log"
    batches = list(open_copy(root).batches())
    path.unlink()
    later = b"".join(found.content for found in batches if found.offset >= 143)
    (folder / f"{143:020}.log").write_bytes(later)
    done, rows = imported([root], tmp_path / "out", trust_tail=True)
    assert (done.proof.first_offset, done.records) == (143, 1515)
    assert sum(row["event_type"] == "ISR_CHANGE" for row in rows) == 51


def test_an_aborted_transaction_leaves_nothing(tmp_path: Path) -> None:
    """Records between Begin and Abort are dropped and counted; those of a transaction that ended are kept."""
    begin, end, abort = (framed(number, 0, b"\0") for number in (23, 24, 25))
    shrink, back = batch(6, change(t0=ids(1, 2))), batch(9, change(t0=ids(1, 3)))
    batches = (*HEAD, batch(5, begin), shrink, batch(7, abort), batch(8, begin), back, batch(10, end))
    done, rows = imported([node(tmp_path, 1, *batches)], tmp_path / "out")
    assert done.dropped_of_transaction == 1
    assert [row["new_isr"] for row in rows if row["event_type"] == "ISR_CHANGE"] == [[1, 3]]


def test_an_unclean_election_is_told_as_one(tmp_path: Path) -> None:
    """A leader that has to recover was elected uncleanly, whatever else the record says."""
    leader = struct.pack(">i", 3)
    lost = batch(5, change(t0=ids(1), t1=struct.pack(">i", -1)))
    unclean = batch(6, change(t0=ids(3), t1=leader, t5=b"\x01"))
    _, rows = imported([node(tmp_path, 1, *HEAD, lost, unclean)], tmp_path / "out")
    row = [row for row in rows if row["event_type"] == "LEADER_CHANGE"][-1]
    assert (row["old_leader"], row["new_leader"], row["election_type"], row["reason"]) == (
        -1,
        3,
        "unclean",
        "unclean_election",
    )


def test_an_epoch_of_the_same_leader_is_no_change_of_leader(tmp_path: Path) -> None:
    """Before metadata version 3.6 a shrink named its leader again: the leader epoch rises, without an election."""
    again = change(t0=ids(1, 2), t1=struct.pack(">i", 1))
    _, rows = imported([node(tmp_path, 1, *HEAD, batch(5, again))], tmp_path / "out")
    assert [(row["event_type"], row["leader_epoch"]) for row in rows[-2:]] == [("ISR_CHANGE", 1), ("STATE_SNAPSHOT", 1)]


def test_a_reassignment_is_told_with_its_replicas(tmp_path: Path) -> None:
    """A record that places the partition elsewhere is a reassignment, not a lag."""
    placed = change(t0=ids(1, 2), t2=ids(1, 2))
    _, rows = imported([node(tmp_path, 1, *HEAD, batch(5, placed))], tmp_path / "out")
    assert [(row["event_type"], row.get("cause"), row.get("replicas")) for row in rows[-2:]] == [
        ("ISR_CHANGE", "reassign", None),
        ("CONFIG_CHANGE", None, [1, 2]),
    ]


def test_every_partition_epoch_has_an_event(tmp_path: Path) -> None:
    """A change of nothing that is exported still fills its partition epoch, or readers would see a loss there."""
    _, rows = imported([node(tmp_path, 1, *HEAD, batch(5, change(t4=ids(4))))], tmp_path / "out")
    assert (rows[-1]["event_type"], rows[-1]["partition_epoch"]) == ("CONFIG_CHANGE", 1)


def test_a_fence_is_told_once(tmp_path: Path) -> None:
    """A second fence of a broker that is down already is counted, and is no event."""
    fence = registration(2, t0=FENCED)
    content = (*HEAD, batch(5, broker(2)), batch(6, change(t0=ids(1, 3)), fence), batch(8, fence))
    done, rows = imported([node(tmp_path, 1, *content)], tmp_path / "out")
    assert [row["phase"] for row in rows if row["event_type"] == "NODE_SESSION"] == ["register", "fence"]
    assert done.repeated_registrations == 1


def test_a_long_silence_of_the_controller_is_told(tmp_path: Path) -> None:
    """When no idle record came for three periods, a decision says for how long nothing could be decided."""
    beats = [batch(5 + n, NO_OP, at_ms=START_MS + 10_000 + 500 * n) for n in range(20)]
    late = batch(25, NO_OP, at_ms=START_MS + 39_500)
    done, rows = imported([node(tmp_path, 1, *HEAD, *beats, late)], tmp_path / "out")
    assert done.silences == 1
    assert rows[-1]["outcome"] == "no decision for 20000 ms before offset 25"


def test_an_election_of_controllers_ends_no_silence(tmp_path: Path) -> None:
    """A record of an election 18 s into a silence of 20 s decides nothing: it is one silence, of 20 s."""
    beats = [batch(5 + n, NO_OP, at_ms=START_MS + 10_000 + 500 * n) for n in range(20)]
    elected = voters(25, 1, epoch=4, at_ms=START_MS + 37_500)
    late = batch(26, NO_OP, at_ms=START_MS + 39_500, epoch=4)
    done, rows = imported([node(tmp_path, 1, *HEAD, *beats, elected, late)], tmp_path / "out")
    said = [row["outcome"] for row in rows if row.get("decision") == "silent"]
    assert (done.silences, said) == (1, ["no decision for 20000 ms before offset 26"])


def test_each_hour_begins_with_every_state(tmp_path: Path) -> None:
    """At the first record of a new hour the state of each partition is written, as of the beginning of the hour."""
    hour_ms = 3_600_000
    late = batch(5, NO_OP, at_ms=(START_MS // hour_ms + 1) * hour_ms + 1500)
    _, rows = imported([node(tmp_path, 1, *HEAD, late)], tmp_path / "out")
    assert rows[-1]["event_type"] == "STATE_SNAPSHOT"
    assert rows[-1]["ts_wall_us"] == (START_MS // hour_ms + 1) * hour_ms * 1000


def test_a_new_controller_is_a_new_incarnation(tmp_path: Path) -> None:
    """Numbers of rows begin again with each controller epoch, and each one's end is reported."""
    _, rows = imported([node(tmp_path, 1, *HEAD, voters(5, 1, epoch=4))], tmp_path / "out")
    assert [(row["incarnation"], row["seq"]) for row in rows if row["event_type"] == "CONTROLLER_DECISION"] == [
        (1, 1),
        (4, 1),
    ]


@pytest.mark.parametrize(
    ("batches", "said"),
    [
        ((batch(1, feature(3)),), "Kafka 3.2 or older"),
        ((batch(1, topic(), partition(1)),), "it names no metadata.version"),
        ((batch(1, feature(), framed(21, 0, b"\x01\0")),), "in migration from ZooKeeper"),
        ((batch(1, feature(), broker(1, is_migrating=True)),), "in migration from ZooKeeper"),
    ],
)
def test_a_cluster_that_is_not_read_is_refused(tmp_path: Path, batches: tuple[bytes, ...], said: str) -> None:
    """Logs of old releases and of clusters in migration are refused with that sentence."""
    with pytest.raises(Unreadable, match=said):
        imported([node(tmp_path, 1, voters(0, 1), *batches)], tmp_path / "out")


def test_an_unreported_minimum_is_null(tmp_path: Path) -> None:
    """Where no record has min.insync.replicas, no row has it, unless it was assumed; and that stands in the source."""
    root = node(tmp_path, 1, voters(0, 1), batch(1, feature()), batch(2, topic(), partition(1, 2, 3)))
    _, rows = imported([root], tmp_path / "out")
    _, assumed = imported([root], tmp_path / "assumed", assumed=Assumed(min_isr=2))
    assert [row for row in rows if "min_isr" in row] == []
    assert [row["min_isr"] for row in assumed if "min_isr" in row] == [2, 2]
    assert source_of(tmp_path / "assumed")["assumed"]["min.insync.replicas"] == 2


def test_the_name_of_a_cluster_is_no_path(tmp_path: Path, run_a_node: Any) -> None:
    """A cluster id that would lead out of the export is refused."""
    root = run_a_node(1)
    (root / "meta.properties").write_text("node.id=1\ncluster.id=../../elsewhere\n")
    with pytest.raises(Unreadable, match=r"the cluster id '\.\./\.\./elsewhere' must be letters, digits"):
        cluster_of([open_copy(root)], None)


def test_a_time_that_is_no_date_is_refused(tmp_path: Path) -> None:
    """A record whose time lies beyond all dates is refused with its offset."""
    root = node(tmp_path, 1, *HEAD, batch(5, NO_OP, at_ms=1 << 60))
    with pytest.raises(Unreadable, match=r"the record at offset 5 cannot be read: its time, .* is not a date"):
        imported([root], tmp_path / "out")


_INTS = st.sampled_from([-(1 << 31), -2, -1, 0, 1, 2, 3, (1 << 31) - 1])
_IDS = st.lists(_INTS, max_size=3).map(lambda found: ids(*found))
_VALUES = st.one_of(
    st.builds(lambda isr, leader: change(t0=isr, t1=struct.pack(">i", leader)), _IDS, _INTS),
    st.builds(lambda isr, elr: change(t0=isr, t2=elr, t5=b"\x01"), _IDS, _IDS),
    st.builds(lambda leader, epoch: partition(1, 2, leader=leader, epoch=epoch), _INTS, _INTS),
    st.builds(lambda who: registration(who, t0=FENCED), _INTS),
    st.builds(lambda who: registration(who, t0=b"\xff"), _INTS),
    st.builds(lambda who: registration(who, t1=b"\x01"), _INTS),
    st.builds(broker, _INTS),
    st.builds(setting, st.sampled_from(["", "1", "-1", "x", "9" * 30])),
    st.sampled_from([NO_OP, topic(), framed(9, 0, TOPIC + b"\0"), framed(28, 0, text("") + b"\0"), framed(77, 3, b"")]),
    st.sampled_from([framed(number, 0, b"\0") for number in (23, 24, 25)]),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches=st.lists(st.lists(_VALUES, min_size=1, max_size=4), max_size=6))
def test_any_history_is_an_export_that_verifies_or_a_sentence(
    tmp_path_factory: Any, batches: list[list[bytes]]
) -> None:
    """Records that are sound one by one, in any order, become an export without an unexplained hole, or are refused."""
    root = tmp_path_factory.mktemp("any")
    offset, content = 5, [*HEAD]
    for values in batches:
        content.append(batch(offset, *values))
        offset += len(values)
    refused = ""
    try:
        imported([node(root, 1, *content)], root / "out")
    except Unreadable as error:
        refused = str(error)
    assert "\n" not in refused
    assert refused or verify(LocalDirectory(root / "out"), "c").is_sound


def test_the_files_are_read_once(tmp_path: Path) -> None:
    """A segment that a controller deletes once it was read is written all the same: what was proved was kept."""
    root = node(tmp_path, 1, *HEAD, batch(5, change(t0=ids(1, 2))))
    work = Import([open_copy(root)], "c")
    for segment in root.rglob("*.log"):
        segment.unlink()
    assert work.write(LocalDirectory(tmp_path / "out")).proof.proved_end == 6


def test_what_waits_too_long_for_its_proof_is_learnt_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch that only a later batch proves may be longer than what is held meanwhile: the events are the same."""
    head = (voters(0, 1, 2, 3), *HEAD[1:], batch(5, broker(2)), batch(6, change(t0=ids(1, 3))), batch(7, broker(2)))
    roots = [node(tmp_path, 1, *head, batch(8, NO_OP)), node(tmp_path, 2, batch(8, NO_OP), first=8)]
    _, rows = imported(roots, tmp_path / "held")
    monkeypatch.setattr(merging, "MOST_WAITING_BYTES", 100)
    _, again = imported(roots, tmp_path / "lost")
    assert again == rows
    assert [row["ext"].get("fast_restart") for row in rows if row["event_type"] == "NODE_SESSION"] == [None, "true"]
    assert ["inferred" in row["ext"] for row in rows if row["event_type"] == "NODE_SESSION"] == [False, True]


def test_what_is_kept_lies_on_the_disk_where_it_is_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what memory may take, the log is kept in a file, and read from there byte by byte."""
    root = node(tmp_path, 1, *HEAD, *(batch(offset, NO_OP) for offset in range(5, 30)))
    _, rows = imported([root], tmp_path / "memory")
    monkeypatch.setattr(merging, "MOST_IN_MEMORY", 100)
    _, again = imported([root], tmp_path / "file")
    assert again == rows
