"""Causes that nobody recorded: each rule where its condition holds and where it does not, and all of them on run A."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from run_a_files import CLUSTER, RUN_A, rows_of

from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from strandline.export.destination import LocalDirectory
from strandline_kafka.brokers.broker_logs import read_logs
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, layout_of
from strandline_kafka.inferred.evidence import Finding, Scene, Seen
from strandline_kafka.inferred.judging import MOST_EVIDENCE, RULES, inferred
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.skeleton import Moment, Registration, Removal, Return, Silence

LAG_MS = 4_000


def removal(leader: int, replica: int, caught_up_ms: int | None, at_ms: int = 10_000, **more: Any) -> Seen:
    """A removal by a leader; the partition's number is the record's offset."""
    offset = more.get("offset", leader * 10 + replica)
    isr = tuple(map(NodeId, more.get("isr", (1, 2, 3))))
    return Seen(
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


def scene(*removals: Seen, **more: Any) -> Scene:
    return Scene(removals=sorted(removals, key=lambda one: one.removal.at_ms), lag_time_ms=LAG_MS, **more)


def found(rule: str, of: Scene) -> list[Finding]:
    return list(RULES[rule](of))


def back(one: Seen, at_ms: int) -> Return:
    return Return(at_ms, one.removal.tp, one.removal.replica)


STOPPED = (removal(1, 2, 6_000), removal(3, 2, 6_015))
FENCE = Moment(14_500, 99, NodeId(2))


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
        scene(*STOPPED, fences=[Moment(60_000, 99, NodeId(2))]),
        scene(*STOPPED, fences=[FENCE], shutdowns=[Moment(7_000, 98, NodeId(2))]),
        scene(STOPPED[0], fences=[FENCE]),
        scene(removal(1, 2, 6_000), removal(3, 2, 8_000), fences=[FENCE]),
    ],
    ids=["no fence", "a late fence", "a shutdown", "one leader", "far apart"],
)
def test_nothing_less_is_a_stop(of: Scene) -> None:
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
def test_nothing_less_is_a_pause(of: Scene) -> None:
    """A fence, no common node, or too little to tell two nodes apart: nobody stood still."""
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
    """One leader and one follower, while nobody else touches either; with another removal of the follower it is not."""
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
    """Only a registration that nobody had fenced or stopped before."""
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


def deed(what: str) -> dict[str, Any]:
    done = map(json.loads, (RUN_A / "truth.jsonl").read_text().splitlines())
    found: dict[str, Any] = next(one for one in done if one["what"] == what)
    return found


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
