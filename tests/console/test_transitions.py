"""Transitions: differences between two states of the controller, with the measurements of that time."""

from __future__ import annotations

from dataclasses import replace

from reported_cluster import NOW_MS, image, led, node, partition, picture, topic_of, tp

from strandline.console.courses import Courses, Transition, Transitions, transitions_between
from strandline.console.lanes import draw_lanes
from strandline.console.overview import partition_rows
from strandline.console.picture import NodeLook, Picture
from strandline.core.messages import MetadataImage


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
