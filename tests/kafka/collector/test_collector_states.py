"""When a state of a partition is reported, and how rows are numbered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.core.state_events import ConfigChange, StateSnapshot
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline_kafka.collector.cluster import Cluster, Partition
from strandline_kafka.collector.files import Rows
from strandline_kafka.collector.looks import Sample
from strandline_kafka.collector.states import States, can_have_elr

TP = TopicPartition("id", 0)
ONE = Partition(
    tp=TP, topic="t", leader=NodeId(1), leader_epoch=LeaderEpoch(4), replicas=(NodeId(1), NodeId(2)),
    isr=frozenset({NodeId(1), NodeId(2)}), offline=frozenset(),
)  # fmt: skip
CLUSTER = Cluster(cluster_id="c", brokers={}, partitions={TP: ONE}, refused={})
GONE = replace(CLUSTER, partitions={})


def with_state(**change: Any) -> Cluster:
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
