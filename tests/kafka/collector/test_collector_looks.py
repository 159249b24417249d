"""What a look says of answers, how often a cluster is looked at, and when a state is reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.core.state_events import ConfigChange, StateSnapshot
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline_kafka.collector.answers import AnsweredOffset
from strandline_kafka.collector.cluster import Broker, ClusterSample, PartitionSample
from strandline_kafka.collector.files import Rows
from strandline_kafka.collector.looks import NOT_GIVEN, Answers, Look, Looks, Sample, who_may_have_more
from strandline_kafka.collector.states import MOST_MS, Pace, States, can_have_elr, usual_period_ms

TP = TopicPartition("id", 0)
NAME = ("t", 0)


def partition(**other: Any) -> PartitionSample:
    nodes = tuple(map(NodeId, (1, 2, 3)))
    own = {"leader": NodeId(1), "leader_epoch": LeaderEpoch(4), "replicas": nodes, "isr": frozenset(nodes)}
    return PartitionSample(tp=TP, topic="t", **{**own, "offline": frozenset(), **other})


def cluster(one: PartitionSample, nodes: tuple[int, ...] = (1, 2, 3)) -> ClusterSample:
    brokers = {NodeId(node): Broker("h", node) for node in nodes}
    return ClusterSample(cluster_id="c", brokers=brokers, partitions={TP: one}, refused={})


def at(offset: int, epoch: int = 4, error: int = 0) -> dict[tuple[str, int], AnsweredOffset]:
    return {NAME: AnsweredOffset(error, offset, epoch)}


def answers(one: PartitionSample | None = None, hw: tuple[int, int] = (90, 90), **ends: int) -> Answers:
    """Of one partition; ``ends`` by broker, as ``n2=95``."""
    shown = cluster(one or partition())
    given = {NodeId(int(name[1:])): at(end) for name, end in (ends or {"n1": 100, "n2": 95, "n3": 90}).items()}
    hw1, hw2 = ({NodeId(1): at(each)} for each in hw)
    return Answers(before=shown, hw1=hw1, ends=given, hw2=hw2, after=shown, log_starts=at(10))


def leos(look: Look) -> dict[int, int | None]:
    return {sample.event.replica_id: sample.event.leo for sample in look.samples}


def test_the_row_of_the_leader_has_both_bounds() -> None:
    """LEO - HW2 and LEO - HW1 stand in ext, and the column has the HW of the upper one."""
    leader, *_ = Looks().take(answers(hw=(90, 97)), 500).samples
    assert (leader.event.hw, leader.event.leader_leo, leader.event.log_start) == (90, 100, 10)
    assert leader.ext == {"hw_lag_low": "3", "hw_lag_high": "10"}


def test_a_log_that_ends_at_its_hw_is_asked_once() -> None:
    """Where the HW was the end of the leader's log, it need not be asked again, and the lag is exactly nothing."""
    settled = replace(answers(hw=(100, 0), n1=100, n2=95, n3=100), hw2={})
    assert who_may_have_more(settled.before, settled.hw1, settled.ends) == {}
    assert who_may_have_more(answers().before, answers().hw1, answers().ends) == {1: {"t": [0]}}
    leader, *_ = Looks().take(settled, 500).samples
    assert (leader.event.hw, leader.ext) == (100, {"hw_lag_low": "0", "hw_lag_high": "0"})


@pytest.mark.parametrize("first", [at(100, error=6), at(100, epoch=3), {}])
def test_a_doubtful_first_answer_is_asked_again(first: dict[tuple[str, int], AnsweredOffset]) -> None:
    """An error, another leader epoch, or no answer at all leaves the question open."""
    given = answers(n1=100)
    assert who_may_have_more(given.before, {NodeId(1): first}, given.ends) == {1: {"t": [0]}}


def test_the_lower_bound_is_not_below_zero() -> None:
    """An HW that was read after the end of the log may be beyond it; the lag was then at least 0."""
    leader, *_ = Looks().take(answers(hw=(90, 130)), 500).samples
    assert leader.ext == {"hw_lag_low": "0", "hw_lag_high": "10"}


def test_widths_of_the_bounds_are_counted() -> None:
    """How often the HW was exact, and by how much it was not, is known of the whole collection."""
    looks = Looks()
    for hw in ((90, 90), (90, 97), (90, 91)):
        looks.take(answers(hw=hw), 500)
    assert looks.bounds == (3, 1, 8, 7)


def test_every_replica_has_the_end_of_its_own_log() -> None:
    """Each row has what that broker answered, in a look with one number."""
    look = Looks().take(answers(), 500)
    assert leos(look) == {1: 100, 2: 95, 3: 90}
    assert {(s.leader, s.event.sample_id, s.event.interval_ms) for s in look.samples} == {(1, 1, 500)}


def test_a_follower_is_not_ahead_of_its_leader() -> None:
    """A follower that was asked a moment later has at most the leader's end; what it answered stands in ext."""
    look = Looks().take(answers(n1=100, n2=104, n3=90), 500)
    assert leos(look)[2] == 100
    assert look.samples[1].ext == {"leo_read": "104"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hw1": {}}, "its leader did not answer"),
        ({"ends": {NodeId(2): at(95)}}, "its leader did not answer"),
        ({"hw2": {NodeId(1): at(90, error=6)}}, "its leader answered with an error"),
        ({"hw2": {NodeId(1): at(90, epoch=5)}}, "its leader epoch changed"),
        ({"after": cluster(partition(leader_epoch=LeaderEpoch(5)))}, "its leader epoch changed"),
        ({"after": replace(cluster(partition()), partitions={})}, "its leader epoch changed"),
        ({"hw2": {NodeId(1): at(89)}}, "its answers contradict each other"),
    ],
)
def test_a_look_that_is_not_of_one_reign_is_void(change: dict[str, Any], why: str) -> None:
    """Without three answers of one leader epoch there is no row; the missing rows and the reason are counted."""
    look = Looks().take(replace(answers(), **change), 500)
    assert (look.samples, dict(look.why), dict(look.missed)) == ([], {why: 1}, {1: 3})


def test_a_partition_without_a_leader_is_not_missing() -> None:
    """Without a leader there is nothing to look at, and nothing is counted as lost."""
    look = Looks().take(answers(partition(leader=None)), 500)
    assert (look.samples, look.why, look.missed) == ([], {}, {})


def test_a_silent_member_has_at_least_what_is_committed() -> None:
    """A member of the ISR that does not answer has its last end or the HW, whichever is more; marked as a bound."""
    looks = Looks()
    looks.take(answers(), 500)
    later = looks.take(answers(hw=(93, 93), n1=200, n2=195), 500)
    assert leos(later) == {1: 200, 2: 195, 3: 93}
    assert later.samples[2].ext == {"leo_bound": "lower"}


def test_a_member_that_has_left_meanwhile_is_not_raised_to_the_hw() -> None:
    """Who is not in the ISR any more after the look may lack what was committed since, and counts as no member."""
    looks = Looks()
    looks.take(answers(), 500)
    asked = answers(hw=(93, 93), n1=200, n2=195)
    gone = cluster(partition(isr=frozenset(map(NodeId, (1, 2)))))
    look = looks.take(replace(asked, after=gone), 500)
    assert [(s.event.leo, s.event.in_isr, s.event.expected_state) for s in look.samples][2] == (
        90,
        False,
        "catching_up",
    )


def test_a_silent_outsider_has_its_last_end() -> None:
    """A replica outside the ISR has the end that it answered last; one that never answered has none."""
    outside = partition(isr=frozenset(map(NodeId, (1, 2))))
    looks = Looks()
    assert leos(looks.take(answers(outside, n1=100, n2=95), 500))[3] is None
    looks.take(answers(outside, n1=100, n2=95, n3=40), 500)
    assert leos(looks.take(answers(outside, n1=100, n2=95), 500))[3] == 40


def test_an_end_of_another_leader_epoch_is_no_bound() -> None:
    """A new leader may cut a log: the end of before is not carried over."""
    looks = Looks()
    outside = partition(isr=frozenset(map(NodeId, (1, 2))))
    looks.take(answers(outside), 500)
    newer = replace(outside, leader_epoch=LeaderEpoch(5))
    asked = answers(newer)
    five = {node: at(found[NAME].offset, epoch=5) for node, found in asked.ends.items() if node != 3}
    hw = {NodeId(1): at(90, epoch=5)}
    assert leos(looks.take(replace(asked, ends=five, hw1=hw, hw2=hw), 500)) == {1: 100, 2: 95, 3: None}


def test_what_is_expected_of_a_replica() -> None:
    """A member is one; outside, a broker that is shown catches up and any other is down."""
    one = partition(isr=frozenset({NodeId(1)}), offline=frozenset({NodeId(2)}))
    assert [s.event.expected_state for s in Looks().take(answers(one), 500).samples] == [
        "member",
        "down",
        "catching_up",
    ]
    asked = replace(
        answers(partition(isr=frozenset({NodeId(1)}))), before=cluster(partition(isr=frozenset({NodeId(1)})), (1, 2))
    )
    assert [s.event.expected_state for s in Looks().take(asked, 500).samples] == ["member", "catching_up", "down"]


def test_what_kafka_does_not_give_is_not_made_up() -> None:
    """Bytes, times, acknowledged offsets, durable ends and the partition epoch are not in a row."""
    for sample in Looks().take(answers(), 500).samples:
        event = sample.event
        assert (event.acked_offset, event.partition_epoch) == (NOT_GIVEN, NOT_GIVEN)
        unknown = (event.durable_leo, event.leo_bytes, event.hw_bytes, event.last_fetch_ms, event.last_caught_up_ms)
        assert unknown == (None,) * 5


# How often a cluster is looked at.


@pytest.mark.parametrize(("partitions", "ms"), [(0, 500), (1_000, 500), (10_000, 5_000), (10_000_000, MOST_MS)])
def test_the_usual_period_grows_with_the_partitions(partitions: int, ms: int) -> None:
    """So many partitions a second are asked about, and no more."""
    assert usual_period_ms(partitions) == ms


def test_the_period_doubles_while_answers_are_slow_and_returns() -> None:
    """Longer than half the period doubles it; it halves as soon as answers fit the shorter one, to what was asked."""
    pace = Pace(500)
    steps = [(250, 500), (251, 1_000), (501, 2_000), (501, 2_000), (500, 1_000), (1, 500), (1, 500)]
    for longest_ms, period_ms in steps:
        pace.after(longest_ms)
        assert pace.period_ms == period_ms


def test_the_period_has_a_limit() -> None:
    """However slow a cluster is, it is looked at once a minute."""
    pace = Pace(40_000)
    pace.after(100_000)
    pace.after(100_000)
    assert pace.period_ms == MOST_MS


# When a state of a partition is reported, and how rows are numbered.


ONE = PartitionSample(
    tp=TP, topic="t", leader=NodeId(1), leader_epoch=LeaderEpoch(4), replicas=(NodeId(1), NodeId(2)),
    isr=frozenset({NodeId(1), NodeId(2)}), offline=frozenset(),
)  # fmt: skip


CLUSTER = ClusterSample(cluster_id="c", brokers={}, partitions={TP: ONE}, refused={})
GONE = replace(CLUSTER, partitions={})


def with_state(**change: Any) -> ClusterSample:
    return replace(CLUSTER, partitions={TP: replace(ONE, **change)})


def test_a_state_is_reported_once() -> None:
    """The first look reports a state, and the next ones only what differs."""
    states = States()
    assert [type(one.event) for one in states.changed(CLUSTER, {}, {"t": 2})] == [StateSnapshot]
    assert list(states.changed(CLUSTER, {}, {"t": 2})) == []
    (smaller,) = states.changed(with_state(isr=frozenset({NodeId(1)})), {}, {"t": 2})
    assert smaller.event.new_isr == (1,)
    (other,) = states.changed(with_state(isr=frozenset({NodeId(1)})), {TP: frozenset({NodeId(2)})}, {"t": 1})
    assert (other.event.elr, other.event.min_isr) == ((2,), 1)


def test_what_is_offline_is_no_state() -> None:
    """A directory that fails changes no leader and no ISR by itself, so it is no new state."""
    states = States()
    list(states.changed(CLUSTER, {}, {}))
    assert list(states.changed(with_state(offline=frozenset({NodeId(2)})), {}, {})) == []


def test_a_topic_that_is_gone_is_reported_as_deleted() -> None:
    """A topic that a whole answer lacks ends its state, once."""
    states = States()
    list(states.changed(CLUSTER, {}, {}))
    (gone,) = states.changed(GONE, {}, {})
    assert isinstance(gone.event, ConfigChange) and gone.event.topic_deleted
    assert list(states.changed(GONE, {}, {})) == []


def test_a_topic_that_is_not_shown_is_not_gone() -> None:
    """A topic with an error other than being unknown keeps its state."""
    states = States()
    list(states.changed(CLUSTER, {}, {}))
    assert list(states.changed(replace(GONE, refused={"t": 29}), {}, {})) == []
    assert len(list(states.changed(replace(GONE, refused={"t": 3}), {}, {}))) == 1


def test_who_can_be_eligible_outside_the_isr() -> None:
    """Only below the minimum, or below all replicas where the minimum is not known."""
    assert not can_have_elr(ONE, 2)
    assert can_have_elr(ONE, 3)
    assert not can_have_elr(ONE, None)
    assert can_have_elr(replace(ONE, isr=frozenset({NodeId(1)})), None)


def looked(leader: int = 1) -> Sample:
    from strandline.core.state_events import ReplicaSample

    event = ReplicaSample(
        1, 500, NodeId(leader), 5, None, 5, 5, -1, -1, None, None, None, None, None, True, False, "member", 4, -1
    )  # type: ignore[arg-type]
    return Sample(NodeId(leader), TP, event, {})


def test_rows_of_each_emitter_are_dense_but_for_named_gaps() -> None:
    """What a leader missed is one gap before its next row, and the numbers go on behind it."""
    rows = Rows("c", 1_000)
    made = list(rows.of_look([looked(), looked(2)], {"id": "t"}, (10, 1)))
    rows.miss({NodeId(1): 3})
    made += rows.of_look([looked()], {}, (20, 2))
    of_1 = [(row["event_type"], row["seq"]) for row in made if row["node_id"] == 1]
    assert of_1 == [("REPLICA_SAMPLE", 1), ("EXPORT_GAP", 5), ("REPLICA_SAMPLE", 6)]
    gap = next(row for row in made if row["event_type"] == "EXPORT_GAP")
    assert (gap["dropped_first_seq"], gap["dropped_last_seq"]) == (2, 4)
    assert gap["dropped_by_type"] == {"REPLICA_SAMPLE": 3}


def test_columns_that_kafka_cannot_fill_are_absent() -> None:
    """What has no word for "not known" in its type is null in the row, never 0, -1 or false."""
    (row,) = Rows("c", 1_000).of_look([looked()], {"id": "t"}, (10, 1))
    absent = {"in_maximal_isr", "acked_offset", "log_start", "partition_epoch", "durable_leo", "leo_bytes"}
    assert not absent & row.keys()
    assert (row["topic"], row["leo"], row["incarnation"], row["ext"]) == ("t", 5, 1_000, {"clock": "wall"})


def test_the_last_word_of_each_emitter_says_that_it_is_the_last() -> None:
    """The end of a collection is a final heartbeat of every emitter, the state's among them."""
    rows = Rows("c", 1_000)
    list(rows.of_look([looked()], {}, (10, 1)))
    last = {row["node_id"]: row for row in rows.beat((30, 3), is_final=True)}
    assert {node: (row["last_seq"], row["ext"]["final"]) for node, row in last.items()} == {
        -1: (0, "true"),
        1: (1, "true"),
    }
