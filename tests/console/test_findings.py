"""What the console finds: states that are wrong, and transitions between two states."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from reported_cluster import NOW_MS, held, image, led, node, partition, picture, topic_of, tp

from strandline.console.courses import Courses, Transition, Transitions, transitions_between
from strandline.console.findings import Finding, Tone, verdict, what_is_wrong
from strandline.console.lanes import draw_lanes
from strandline.console.overview import partition_rows
from strandline.console.picture import ControllerLook, NodeLook, Picture
from strandline.core.messages import MetadataImage


def found(shown: Picture) -> dict[str, Finding]:
    """The findings by kind, in their order."""
    return {finding.kind: finding for finding in what_is_wrong(shown, partition_rows(shown))}


def _verdict(shown: Picture) -> str:
    return verdict(shown, what_is_wrong(shown, partition_rows(shown)))


def test_a_healthy_cluster_has_no_findings() -> None:
    """Every replica in sync, every node answering, the preferred one leading: the list is empty."""
    shown = picture(topic_of(partition(0), partition(1)))

    assert found(shown) == {}
    assert _verdict(shown) == "Nothing is wrong"


def test_one_replica_of_one_is_healthy() -> None:
    """A partition that never had more than one replica is permanently at its min ISR, which is not wrong."""
    assert found(picture(topic_of(partition(0, replicas=(1,), isr=(1,), min_isr=1)))) == {}


@pytest.mark.parametrize(
    ("changed", "kinds", "short"),
    [
        ({"isr": (1, 2), "min_isr": 1}, ["out-of-sync"], "1 replica out of sync"),
        ({"isr": (1, 2)}, ["at-min", "out-of-sync"], "1 partition at min ISR; 1 replica out of sync"),
        ({"isr": (1,)}, ["under-min", "out-of-sync"], "1 partition under min ISR; 2 replicas out of sync"),
        ({"isr": (2,), "leader": None}, ["offline", "out-of-sync"], "1 partition offline; 2 replicas out of sync"),
        ({"recovering": True}, ["recovering"], "1 partition elected unclean"),
        ({"leader": 2}, ["not-preferred"], "Nothing is wrong"),
    ],
)
def test_a_partition_is_judged_by_what_the_controller_committed(
    changed: dict[str, Any], kinds: list[str], short: str
) -> None:
    """Out of sync is replicas minus ISR; under min ISR and offline take the place of at min ISR."""
    shown = picture(topic_of(partition(0, **changed), partition(1)))

    assert list(found(shown)) == kinds
    assert _verdict(shown) == short


def test_leadership_elsewhere_is_only_a_note() -> None:
    """A leader that is not the preferred one does not make the cluster unhealthy."""
    assert found(picture(topic_of(partition(0, leader=2))))["not-preferred"].tone is Tone.NOTE


def test_the_offline_partition_names_who_can_lead_it() -> None:
    """The remedy names the nodes of ISR and ELR, because only they may be elected."""
    shown = picture(topic_of(partition(0, isr=(2,), elr=(3,), leader=None)))

    assert "node 2, node 3" in found(shown)["offline"].remedy


def test_a_fenced_node_is_named() -> None:
    """A node whose session ended is a finding even where it holds nothing."""
    shown = picture(topic_of(partition(0)), nodes=(node(1), node(2), node(3), node(4, fenced=True)))

    assert list(found(shown)) == ["fenced"]
    assert found(shown)["fenced"].nodes == (4,)


def test_a_nearly_full_disk_is_named() -> None:
    """A node that refuses appends is a bad finding although all replicas are in sync; fenced, it is that alone."""
    filled = (node(1), node(2, disk_nearly_full=True), node(3))
    gone = (node(1), node(2, disk_nearly_full=True, fenced=True), node(3))

    assert found(picture(topic_of(partition(0)), nodes=filled))["disk"].nodes == (2,)
    assert _verdict(picture(topic_of(partition(0)), nodes=filled)) == "The disk of node 2 nearly full"
    assert list(found(picture(topic_of(partition(0)), nodes=gone))) == ["fenced"]


def test_a_node_that_does_not_answer_is_silent_after_two_seconds() -> None:
    """One slow answer is no finding; two seconds of them are, until the controller fences the node."""
    silent = NodeLook(answered_ms=NOW_MS - 3_000, failing_since_ms=NOW_MS - 2_000, failure="deadline")
    slow = NodeLook(answered_ms=NOW_MS - 3_000, failing_since_ms=NOW_MS - 1_999, failure="deadline")
    fenced = (node(1), node(2), node(3, fenced=True))

    assert list(found(picture(topic_of(partition(0)), looks={3: silent}))) == ["silent"]
    assert found(picture(topic_of(partition(0)), looks={3: slow})) == {}
    assert list(found(picture(topic_of(partition(0)), looks={3: silent}, nodes=fenced))) == ["fenced"]


def test_a_failed_replica_tells_its_reason() -> None:
    """A node's reason for a failed replica is on the page."""
    look = NodeLook(answered_ms=NOW_MS, held={tp(0): held(5, 5, "failed", "cannot cut below HW 5")})
    shown = picture(topic_of(partition(0, isr=(1, 2), min_isr=1)), looks={3: look})

    assert "cannot cut below HW 5" in found(shown)["failed"].sentence


@pytest.mark.parametrize(
    "controller",
    [
        ControllerLook(heard_ms=NOW_MS - 12_000, failing_since_ms=NOW_MS - 12_000, failure="connection refused"),
        ControllerLook(heard_ms=NOW_MS - 12_000),
    ],
)
def test_a_silent_controller_is_reported_with_the_age_of_what_is_known(controller: ControllerLook) -> None:
    """The page is as old as the controller's last message, and it shows how old."""
    shown = picture(topic_of(partition(0)), controller=controller)

    assert list(found(shown)) == ["controller"]
    assert "12 s ago" in found(shown)["controller"].sentence


def test_before_the_first_answer_nothing_is_called_healthy() -> None:
    """Before the first answer the cluster is not shown as healthy."""
    unknown = Picture(now_ms=NOW_MS, bootstrap="127.0.0.1:1")

    assert list(found(unknown)) == ["controller"]
    assert _verdict(unknown) == "Nothing is known yet: no controller has answered"


def test_the_worst_comes_first() -> None:
    """Bad before warnings before notes, for any subject."""
    shown = picture(
        topic_of(partition(0, isr=(1, 2)), partition(1, leader=2), partition(2, isr=(3,), leader=None)),
        nodes=(node(1), node(2), node(3, fenced=True)),
    )
    tones = [finding.tone for finding in found(shown).values()]

    assert list(found(shown)) == ["offline", "fenced", "at-min", "out-of-sync", "not-preferred"]
    assert tones == sorted(tones, key=list(Tone).index)


def test_a_measurement_of_another_epoch_does_not_count() -> None:
    """A deposed leader's measurements are not shown as the partition's, while its replacement has not answered."""
    looks = {1: NodeLook(answered_ms=NOW_MS, led={tp(0): led({1: 900, 2: 900}, hw=900, epoch=3)})}
    row = partition_rows(picture(topic_of(partition(0)), looks=looks))[0]

    assert (row.leo, row.hw, row.age_ms) == (None, None, None)


def test_a_row_has_what_leader_and_replica_say() -> None:
    """Lag is the leader's; the HW of a replica is the one it reports; the age is that of the leader's answer."""
    looks = {
        1: NodeLook(answered_ms=NOW_MS - 700, led={tp(0): led({1: 900, 2: 880, 3: None}, hw=880)}),
        2: NodeLook(answered_ms=NOW_MS, held={tp(0): held(885, 870)}),
    }
    row = partition_rows(picture(topic_of(partition(0, isr=(1, 2))), looks=looks))[0]
    second, third = row.chips[1:]

    assert (row.log_start, row.hw, row.leo, row.age_ms, row.lag) == (0, 880, 900, 700, 20)
    assert (second.leo, second.own_leo, second.own_hw, second.lag_records) == (880, 885, 870, 20)
    assert (third.leo, third.lag_records, third.state.value) == (None, None, "joining")
    assert row.is_at_min


def _found(before: Picture, after: MetadataImage) -> list[Transition]:
    return list(transitions_between(before, after, wall_ms=0))


def test_a_shrink_tells_what_was_seen_of_who_left() -> None:
    """Lag and age of the last fetch, as the leader measured them before, aged until now."""
    looks = {1: NodeLook(answered_ms=NOW_MS - 500, led={tp(0): led({1: 900, 2: 900, 3: 100}, hw=900)})}
    before = picture(topic_of(partition(0)), looks=looks)
    found = _found(before, image(topic_of(partition(0, isr=(1, 2), partition_epoch=8))))

    assert [(each.kind, each.sentence) for each in found] == [
        ("shrink", "ISR {1, 2, 3} → {1, 2}, partition epoch 8")
    ]  # fmt: skip
    assert found[0].seen == "node 3: it was 800 records behind, its last fetch was 0.6 s old"


def test_a_new_leader_is_reported_with_its_epoch() -> None:
    """A leader change and the shrink of the same state are two transitions; the old leader is named as such."""
    after = image(topic_of(partition(0, leader=2, leader_epoch=5, isr=(2, 3), partition_epoch=8)))
    found = _found(picture(topic_of(partition(0))), after)

    assert [each.kind for each in found] == ["leader", "shrink"]
    assert found[0].sentence == "node 1 leads → node 2 leads, leader epoch 5"
    assert found[1].seen == "node 1 led until then"


def test_states_that_were_skipped_are_reported_as_not_seen() -> None:
    """After a gap in the watch the number of missed states is known from the partition epoch."""
    after = image(topic_of(partition(0, isr=(1, 2), partition_epoch=11)))

    assert "3 states in between were not seen" in _found(picture(topic_of(partition(0))), after)[0].sentence


def test_nodes_and_topics_come_and_go() -> None:
    """Fencing, registration, creation and deletion are transitions too."""
    before = picture(topic_of(partition(0)))
    nodes = (node(1), node(3, fenced=True), node(4))
    found = _found(before, image(topic_of(partition(0, topic="new"), name="new"), nodes=nodes))

    assert {each.sentence for each in found} == {
        "node 2 removed",
        "node 3 fenced",
        "node 4 registered",
        "topic new created with 1 partitions",
        "topic tides deleted",
    }


def test_the_first_state_is_no_change() -> None:
    """A console that starts does not report the whole cluster as new."""
    assert _found(Picture(now_ms=NOW_MS), image(topic_of(partition(0)))) == []


def test_memory_is_bounded_and_the_newest_stay() -> None:
    """Beyond the bound the oldest transitions are dropped; the newest come first."""
    kept = Transitions(3)
    kept.add(Transition(at_wall_ms=at, kind="leader", sentence=str(at), tp=tp(at % 2)) for at in range(10))

    assert [each.at_wall_ms for each in kept.newest(10)] == [9, 8, 7]
    assert [each.at_wall_ms for each in kept.newest(10, tp(1))] == [9, 7]


def test_lanes_are_kept_for_a_bounded_number_of_partitions() -> None:
    """Partitions with a finding or a recent viewer are kept; healthy ones are dropped, and samples are bounded."""
    courses = Courses(most_partitions=2, most_samples=3)
    rows = partition_rows(picture(topic_of(partition(0), partition(1), partition(2), partition(3, isr=(1, 2)))))
    for at_ms in range(10):
        courses.take(rows, at_ms)

    assert len(courses.of(tp(3))) == 3
    assert sum(bool(courses.of(tp(index))) for index in range(4)) == 2
    courses.follow(tp(2))
    courses.take(rows, 10)
    assert [sample.at_ms for sample in courses.of(tp(2))] == [10]


def test_lanes_draw_what_was_measured_and_nothing_else() -> None:
    """One lane for each replica; a replica without a measurement has a state and no curve."""
    looks = {1: NodeLook(answered_ms=NOW_MS, led={tp(0): led({1: 900, 2: 100, 3: None}, hw=100)})}
    shown = picture(topic_of(partition(0, isr=(1, 2))), looks=looks)
    courses = Courses(most_partitions=1, most_samples=10)
    for at_ms in (NOW_MS - 2_000, NOW_MS - 1_000):
        courses.take(partition_rows(replace(shown, now_ms=at_ms)), at_ms)
    lanes = draw_lanes(courses.of(tp(0)), [1, 2, 3], NOW_MS)

    assert [len(lane.spans) for lane in lanes.lanes] == [1, 1, 1]
    assert [lane.leo.count("L") for lane in lanes.lanes] == [1, 1, 0]
    assert (lanes.lowest, lanes.highest) == (100, 900)
    assert lanes.lanes[2].leo == ""


def test_the_end_of_a_move_is_no_shrink() -> None:
    """Its start and its end are transitions of their own, and those that it takes away have not left."""
    before = partition()
    both = {"replicas": (4, 1, 2, 3), "adding": (4,), "removing": (3,), "original": (1, 2, 3)}
    started = replace(before, **both)
    joined = replace(started, isr=(4, 1, 2, 3), partition_epoch=8)
    ended = partition(replicas=(4, 1, 2), isr=(4, 1, 2), partition_epoch=9)
    images = [image(topic_of(each), offset=number) for number, each in enumerate((before, started, joined, ended))]
    seen = [
        each
        for was, now in pairwise(images)
        for each in transitions_between(Picture(now_ms=0, image=was), now, wall_ms=0)
    ]

    assert [(each.kind, each.seen) for each in seen] == [("move", ""), ("expand", ""), ("move", ""), ("move", "")]
    assert seen[0].sentence == "move {1, 2, 3} → {1, 2, 4} started"
    assert seen[2].sentence == "move {1, 2, 3} → {1, 2, 4} completed"
