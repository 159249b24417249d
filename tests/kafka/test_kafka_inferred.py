"""Causes that were not recorded, rare records, and contradictions at which Kafka's controller would stop."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka_export import refusal, rows_of, run_import
from metadata_log_bytes import (
    FENCED,
    HEAD,
    NO_OP,
    START_MS,
    TOPIC,
    batch,
    broker,
    change,
    feature,
    framed,
    ids,
    node,
    partition,
    registration,
    tagged,
    text,
    topic,
    voters,
)  # fmt: skip
from run_a_files import CLUSTER, deed

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.export.destination import LocalDirectory
from strandline_kafka.brokers.broker_logs import read_logs
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, layout_of
from strandline_kafka.inferred.evidence import Evidence, Finding, RemovedReplica
from strandline_kafka.inferred.judging import MOST_EVIDENCE, RULES, inferred
from strandline_kafka.metadata.importing import Import, Imported
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.skeleton import BrokerMoment, Registration, Removal, Return, Silence
from strandline_kafka.metadata.wire import Unreadable

LAG_MS = 4_000


def removal(leader: int, replica: int, caught_up_ms: int | None, at_ms: int = 10_000, **more: Any) -> RemovedReplica:
    """A removal by a leader; the partition's number is the record's offset."""
    offset = more.get("offset", leader * 10 + replica)
    isr = tuple(map(NodeId, more.get("isr", (1, 2, 3))))
    return RemovedReplica(
        Removal(
            at_ms=at_ms,
            meta_offset=offset,
            topic="t",
            tp=TopicPartition("id", offset),
            partition_epoch=PartitionEpoch(1),
            replica=NodeId(replica),
            leader=NodeId(leader),
            leader_since_ms=more.get("since_ms", 0),
            old_isr=isr,
            new_isr=tuple(node for node in isr if node != replica),
            elr=(),
            leader_epoch=LeaderEpoch(0),
        ),
        caught_up_ms,
        None if caught_up_ms is None else f"node {leader} server.log:{offset}",
    )


def scene(*removals: RemovedReplica, **more: Any) -> Evidence:
    return Evidence(removals=sorted(removals, key=lambda one: one.removal.at_ms), lag_time_ms=LAG_MS, **more)


def found(rule: str, of: Evidence) -> list[Finding]:
    return list(RULES[rule](of))


def back(one: RemovedReplica, at_ms: int) -> Return:
    return Return(at_ms, one.removal.tp, one.removal.replica)


STOPPED = (removal(1, 2, 6_000), removal(3, 2, 6_015))
FENCE = BrokerMoment(14_500, 99, NodeId(2))


def test_a_node_that_several_leaders_lost_at_once_and_whose_session_ended_has_stopped() -> None:
    """The fence within the session is evidence, and so are the records and lines of the removals."""
    (one,) = found("node_stopped", scene(*STOPPED, fences=[FENCE]))
    assert (one.subject, one.explains) == ("node 2", (12, 32))
    assert one.evidence == (
        "meta_offset 12", "node 1 server.log:12", "meta_offset 32", "node 3 server.log:32", "meta_offset 99",
    )  # fmt: skip


@pytest.mark.parametrize(
    "of",
    [
        scene(*STOPPED),
        scene(*STOPPED, fences=[BrokerMoment(60_000, 99, NodeId(2))]),
        scene(*STOPPED, fences=[FENCE], shutdowns=[BrokerMoment(7_000, 98, NodeId(2))]),
        scene(STOPPED[0], fences=[FENCE]),
        scene(removal(1, 2, 6_000), removal(3, 2, 8_000), fences=[FENCE]),
    ],
    ids=["no fence", "a late fence", "a shutdown", "one leader", "far apart"],
)
def test_nothing_less_is_a_stop(of: Evidence) -> None:
    """Each part of the condition is needed."""
    assert found("node_stopped", of) == []


def test_without_logs_the_fence_alone_tells_a_stop() -> None:
    """With the metadata log alone, removals by two leaders shortly before a fence are a stop; else they are not."""
    unknown = (removal(1, 2, None), removal(3, 2, None))
    (one,) = found("node_stopped", scene(*unknown, fences=[FENCE]))
    assert one.explains == (12, 32)
    assert found("node_stopped", scene(*unknown)) == []
    returned = [back(one, 11_000) for one in unknown]
    assert found("node_stopped", scene(*unknown, fences=[FENCE], returns=returned)) == []


def test_the_node_in_every_removal_of_one_moment_stood_still() -> None:
    """Node 1 is removed by two leaders and removes two healthy followers: it explains all four."""
    pause = (removal(2, 1, 6_000), removal(3, 1, 6_080), removal(1, 2, 6_050), removal(1, 3, 6_082))
    (one,) = found("node_paused", scene(*pause))
    assert (one.subject, len(one.explains)) == ("node 1", 4)
    assert "4 of 4 removals" in one.says and "node 2 2, node 3 2" in one.says


@pytest.mark.parametrize(
    "of",
    [
        scene(*STOPPED, fences=[FENCE]),
        scene(removal(1, 2, 6_000), removal(3, 4, 6_010)),
        scene(removal(1, 2, 6_000)),
        scene(removal(1, 2, None), removal(3, 2, None)),
        scene(removal(1, 2, 6_000, offset=1), removal(1, 2, 6_010, offset=2)),
    ],
    ids=["fenced", "no common node", "one removal", "no logs", "one pair"],
)
def test_nothing_less_is_a_pause(of: Evidence) -> None:
    """A fence, no common node, or too little to tell two nodes apart: no node stood still."""
    assert found("node_paused", of) == []


def test_two_nodes_that_explain_the_same_are_a_tie() -> None:
    """Where node 1 removed 2, and 2 removed 1, at one moment, both are named and neither is preferred."""
    both = inferred(scene(removal(1, 2, 6_000), removal(2, 1, 6_010)))
    assert {(one["rule"], one["subject"]) for one in json.loads(both[12])} == {
        ("node_paused", "node 1"),
        ("node_paused", "node 2"),
    }


def test_a_slow_replica_goes_on_fetching() -> None:
    """Removals by two leaders at different moments, each with a return within the lag time."""
    one, two = removal(1, 2, 4_000, at_ms=8_200), removal(3, 2, 6_000, at_ms=10_300)
    early = [back(one, 9_000), back(two, 12_000)]
    assert [each.subject for each in found("slow_replica", scene(one, two, returns=early))] == ["node 2"]
    late = [back(one, 9_000), back(two, 15_000)]
    assert found("slow_replica", scene(one, two, returns=late)) == []
    assert found("slow_replica", scene(one, two, returns=early, fences=[FENCE])) == []


def test_a_pair_alone_is_the_link() -> None:
    """One leader and one follower, while no other touches either; with another removal of the follower it is not."""
    alone = removal(1, 2, 6_000)
    assert [each.subject for each in found("slow_pair", scene(alone))] == ["nodes 1 and 2"]
    assert found("slow_pair", scene(alone, removal(3, 2, 9_000, at_ms=13_000))) == []
    assert found("slow_pair", scene(removal(1, 2, 6_000, isr=(1, 2)))) == []


def test_a_leader_that_loses_healthy_followers_is_suspected() -> None:
    """Two followers removed by one leader at one moment; if another leader removed one of them too, it is not."""
    own = (removal(1, 2, 6_000), removal(1, 3, 6_010))
    assert [each.subject for each in found("leader_side", scene(*own))] == ["node 1"]
    assert found("leader_side", scene(*own, removal(4, 2, 6_020))) == []
    assert found("leader_side", scene(own[0])) == []


def test_a_removal_by_a_young_epoch_is_marked() -> None:
    """An epoch younger than the lag time; an older one, or one from before the log, is not marked."""
    assert len(found("young_leader", scene(removal(1, 2, None, since_ms=7_000)))) == 1
    assert found("young_leader", scene(removal(1, 2, None, since_ms=5_000))) == []
    assert found("young_leader", scene(removal(1, 2, None, since_ms=None))) == []


def test_what_waited_for_the_quorum_is_marked() -> None:
    """A removal right behind a silence of the controller; one long after it is not."""
    assert len(found("controller_silent", scene(removal(1, 2, None), silences=[Silence(2_000, 9_900, 5)]))) == 1
    assert found("controller_silent", scene(removal(1, 2, None), silences=[Silence(2_000, 6_000, 5)])) == []


def test_a_registration_of_an_active_broker_is_a_crash_and_a_restart() -> None:
    """Only a registration without a fence or a stop before it counts."""
    fast, slow = Registration(1, 7, NodeId(2), 7, True), Registration(2, 8, NodeId(3), 8, False)
    (one,) = found("fast_restart", scene(registrations=[fast, slow]))
    assert (one.subject, one.explains) == ("node 2", (7,))


def test_the_rule_that_explains_most_stands() -> None:
    """A leader that lost two followers and was lost itself stood still: the rule that explains more changes stays."""
    pause = (removal(2, 1, 6_000), removal(3, 1, 6_080), removal(1, 2, 6_050), removal(1, 3, 6_082))
    assert len(found("leader_side", scene(*pause))) == 1
    assert {one["rule"] for one in json.loads(inferred(scene(*pause))[12])} == {"node_paused"}


def test_evidence_is_bounded() -> None:
    """A finding about a thousand removals names some of them, and how many more there are."""
    many = [removal(1 + n % 2 * 2, 2, 6_000, offset=n) for n in range(1000)]
    (one,) = json.loads(inferred(scene(*many, fences=[FENCE._replace(meta_offset=5_000)]))[0])
    assert len(one["evidence"]) == MOST_EVIDENCE + 1
    assert one["evidence"][-1] == f"{2001 - MOST_EVIDENCE} more"


def findings_of_run_a(make_node: Any, logs: Any, out: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each row that has something inferred, with each finding."""
    copies = [open_copy(make_node(node)) for node in (1, 2, 3)]
    read = [] if logs is None else [read_logs(n, logs(n), layout_of(DEFAULT_PATTERN)) for n in (1, 2, 3)]
    Import(copies, CLUSTER, logs=read).write(LocalDirectory(out))
    return [(row, one) for row in rows_of(out) for one in json.loads(row.get("ext", {}).get("inferred", "[]"))]


def test_run_a_is_explained_by_what_was_done(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """Nine removals by leaders: five by the node that was stopped, four by the one that was killed."""
    found = findings_of_run_a(run_a_node, run_a_logs, tmp_path / "out")
    stopped, killed = deed("SIGSTOP"), deed("kill -9")
    by_rule = {rule: [row for row, one in found if one["rule"] == rule] for rule in {one["rule"] for _, one in found}}
    assert {rule: len(rows) for rule, rows in by_rule.items()} == {"node_paused": 5, "node_stopped": 4}
    subjects = {(one["rule"], one["subject"]) for _, one in found}
    assert subjects == {("node_paused", f"node {stopped['node']}"), ("node_stopped", f"node {killed['node']}")}
    pause = next(one for _, one in found if one["rule"] == "node_paused")
    assert "5 of 5 removals of one moment (node 2 3, node 3 2)" in pause["says"]
    for rows in by_rule.values():
        # What is inferred never stands where a cause does.
        assert {row["cause"] for row in rows} == {"lag"}


def test_the_moment_of_the_kill_is_found(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """The time that the logs give for the end of node 2 is within 100 ms of the kill."""
    found = findings_of_run_a(run_a_node, run_a_logs, tmp_path / "out")
    says = next(one["says"] for _, one in found if one["rule"] == "node_stopped")
    moment = datetime.fromtimestamp(deed("kill -9")["t_ms"] / 1000, UTC)
    parsed = datetime.fromisoformat(f"{moment:%Y-%m-%d} {says.split(' to ')[1].split()[0]}+00:00")
    assert abs((parsed - moment).total_seconds()) < 0.1


def test_the_metadata_log_alone_explains_the_kill_only(run_a_node: Any, tmp_path: Path) -> None:
    """Without logs a pause is a lag whose reason is not recorded, and the stop is known by its fence."""
    found = findings_of_run_a(run_a_node, None, tmp_path / "out")
    assert {one["rule"] for _, one in found} == {"node_stopped"}
    assert len(found) == 4


# Records that run A lacks, each as Kafka's controller writes it: causes, ELRs, orders, and a clock that goes back.


DIRECTORY = b"\x02" + bytes(range(16))
"""One directory of logs."""


def rows_of_rare(tmp_path: Path, *batches: bytes) -> list[dict[str, Any]]:
    """The events behind those of `HEAD`, in order."""
    root = node(tmp_path, 1, *HEAD, *batches)
    Import([open_copy(root)], "c").write(LocalDirectory(tmp_path / "out"))
    rows = [row for row in rows_of(tmp_path / "out") if "HEARTBEAT" not in row["event_type"]]
    return [row for row in rows if row["ts_wall_us"] >= (START_MS + 500) * 1_000]


def directories(broker_id: int) -> bytes:
    """A change of a registration that names the directories that are left."""
    return framed(17, 3, struct.pack(">iq", broker_id, 1) + tagged(t2=DIRECTORY))


@pytest.mark.parametrize(
    ("reason", "cause"), [(broker(2), "unclean_registration"), (directories(2), "offline_directory")]
)
def test_a_removal_before_a_registration_has_its_cause(tmp_path: Path, reason: bytes, cause: str) -> None:
    """The controller removes a broker that was not stopped in order, or lost a directory, before it says so."""
    rows = rows_of_rare(tmp_path, batch(5, broker(2)), batch(6, change(t0=ids(1, 3)), reason))
    (removal,) = (row for row in rows if row["event_type"] == "ISR_CHANGE")
    assert (removal["cause"], removal["initiator"]) == (cause, "controller")


def test_the_order_of_an_isr_is_no_change(tmp_path: Path) -> None:
    """An ISR is a set: the same members in another order are no change of it (A5)."""
    rows = rows_of_rare(tmp_path, batch(5, change(t0=ids(3, 2, 1))))
    assert [(row["event_type"], row["partition_epoch"]) for row in rows] == [("CONFIG_CHANGE", 1)]


def test_an_elr_is_cleared_without_a_new_epoch(tmp_path: Path) -> None:
    """The record empties the ELR of a topic's partitions, and leaves their partition epochs (A6)."""
    shrink = framed(5, 2, struct.pack(">i", 0) + TOPIC + tagged(t0=ids(1, 2), t6=ids(3)))
    rows = rows_of_rare(tmp_path, batch(5, shrink), batch(6, framed(28, 0, text("t") + b"\0")))
    seen = [(row["event_type"], row["elr"], row["partition_epoch"]) for row in rows]
    assert seen == [("ISR_CHANGE", [3], 1), ("STATE_SNAPSHOT", [], 1)]


def test_a_clock_that_goes_back_leaves_an_order(tmp_path: Path) -> None:
    """The time of day is the record's; the monotonic time never falls within a reign (A16)."""
    times = (START_MS + 9_000, START_MS + 6_000, START_MS + 9_500)
    isrs = (ids(1, 3), ids(1, 2, 3), ids(1, 2))
    changes = [batch(5 + n, change(t0=isr), at_ms=at) for n, (isr, at) in enumerate(zip(isrs, times, strict=True))]
    rows = [row for row in rows_of_rare(tmp_path, *changes) if row["event_type"] == "ISR_CHANGE"]
    assert [row["ts_wall_us"] // 1_000 - START_MS for row in rows] == [9_000, 6_000, 9_500]
    assert [row["ts_mono_us"] // 1_000 - START_MS for row in rows] == [9_000, 9_000, 9_500]
    assert {row["ext"]["clock"] for row in rows} == {"wall"}


def test_nothing_is_written_into_kafkas_directories(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """Logs of controllers and brokers and checkpoint files are as they were, to the nanosecond (A35)."""
    own = [run_a_node(1), run_a_node(2), run_a_logs(1), run_a_logs(1).parent]

    def state() -> dict[Path, tuple[int, int]]:
        paths = {path for root in own for path in (root, *root.rglob("*"))}
        return {path: ((found := path.stat()).st_mtime_ns, found.st_size) for path in paths}

    before = state()
    controllers = ["--metadata-log", own[0], "--metadata-log", own[1]]
    beside = ["--logs", f"n1={own[2]}", "--partitions", f"n1={own[3]}"]
    ran = run_import(*controllers, *beside, "--out", tmp_path / "export")
    assert ran.exit_code == 0, ran.stderr
    assert state() == before


def test_without_a_metadata_log_nothing_is_imported(run_a_logs: Any, tmp_path: Path) -> None:
    """What other sources say is placed by the metadata log, so that they are refused without it (A1)."""
    ran = run_import("--logs", f"n1={run_a_logs(1)}", "--out", tmp_path / "export")
    assert ran.exit_code == 2
    assert "--metadata-log: name the log.dir of a controller" in refusal(ran)
    assert not (tmp_path / "export").exists()


# What Kafka's own controller would stop at: an import says it, or ends at it, and never passes over it in silence.


BEGINS, ENDS = framed(23, 0, tagged()), framed(24, 0, tagged())
OTHER = bytes(16)


def imported(tmp_path: Path, batches: Iterable[bytes], first: int = 0) -> Imported:
    root = node(tmp_path, 1, *batches, first=first)
    return Import([open_copy(root)], "c", trust_tail=True).write(LocalDirectory(tmp_path / "out"))


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([change(t0=ids(1)).replace(TOPIC, OTHER)], "changes partition 0 of topic 0{8}-.*, which no record made"),
        ([partition(1, 2, 3).replace(TOPIC, OTHER)], "is of topic 0{8}-.*, which no record made"),
        ([framed(9, 0, OTHER + b"\0")], "removes topic 0{8}-.*, which no record made"),
        ([topic().replace(TOPIC, OTHER)], "makes a second topic of the name t"),
        ([registration(2, t0=FENCED)], "changes the registration of broker 2, which never registered"),
        ([framed(1, 0, struct.pack(">iq", 2, 1) + b"\0")], "changes the registration of broker 2, which never"),
        ([broker(2), framed(7, 0, struct.pack(">iq", 2, 9) + b"\0")], "of broker epoch 9 of broker 2, which .* with 1"),
        ([BEGINS, BEGINS], "BeginTransaction stands within a transaction"),
        ([ENDS], "EndTransaction stands without a BeginTransaction"),
        ([framed(5, 7, b"\0")], "PartitionChange version 7 is of a Kafka newer than 4.3"),
    ],
)
def test_a_record_that_contradicts_those_before_it_ends_the_import(
    records: list[bytes], said: str, tmp_path: Path
) -> None:
    """Where nothing is missing before it, what no controller could replay is refused with its offset."""
    with pytest.raises(Unreadable, match=said) as refused:
        imported(tmp_path, [*HEAD, batch(5, *records)])
    assert "offset 5" in str(refused.value) or "offset 6" in str(refused.value)


@pytest.mark.parametrize("record", [change(t0=ids(1)), registration(2, t0=FENCED), ENDS])
def test_a_log_that_begins_later_may_name_what_it_does_not_hold(record: bytes, tmp_path: Path) -> None:
    """What was made before the first offset that is kept is in no record, and contradicts nothing."""
    log = [voters(40, 1), batch(41, feature()), batch(42, record), batch(43, NO_OP)]
    assert imported(tmp_path, log, first=40).records == 4


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("metadata.version", 31, "1 of feature metadata.version level 31"),
        ("moon.version", 1, "1 of feature moon.version level 1"),
        ("metadata.version", 30, None),
        ("moon.version", 0, None),
    ],
)
def test_a_feature_that_is_not_known_is_said(name: str, level: int, said: str | None, tmp_path: Path) -> None:
    """A level that no released controller has is counted, named, and a gap of the export; one that is known is not."""
    root = node(tmp_path, 1, *HEAD, batch(5, framed(12, 0, text(name) + struct.pack(">h", level) + b"\0")))
    ran = run_import("--metadata-log", root, "--trust-tail", "--out", tmp_path / "out")
    assert ran.exit_code == 0
    assert (said or "gaps of the export") in ran.stderr or said is None
    assert ("gaps of the export" in ran.stderr) == (said is not None)
