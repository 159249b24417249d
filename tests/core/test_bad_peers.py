"""Well-typed nonsense from peers: a core answers or ignores it, keeps its invariants, and never stops because of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, fetch_part, fetch_request, history, metadata, node_epoch, partition_image
from hypothesis import given
from hypothesis import strategies as st

from strandline.core import messages
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import events
from strandline.core.types import (
    Acks,
    Durability,
    EpochEnd,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    Rules,
    TopicPartition,
    Truncation,
)

OFFSETS = st.integers(-3, 14)
EPOCHS = st.none() | st.integers(-2, 7)
NOWHERE = TopicPartition("nowhere", 3)
PLACES = st.sampled_from([TP, TP, TP, TP1, NOWHERE])

parts = st.builds(
    lambda tp, offset, epoch, lfe, start: fetch_part(offset, tp=tp, epoch=epoch, lfe=lfe, log_start=start),
    PLACES, OFFSETS, EPOCHS, EPOCHS, st.none() | OFFSETS,
)  # fmt: skip
requests = st.builds(
    lambda found, who, life, wait, least: fetch_request(*found, replica=who, life=life, wait=wait, min_bytes=least),
    st.lists(parts, max_size=3), st.sampled_from([None, 2, 2, 3, 9]), st.integers(0, 2), st.sampled_from([-1, 0, 300]),
    st.sampled_from([-1, 0, 1, 500]),
)  # fmt: skip


@given(st.data())
def test_a_leader_survives_whatever_it_is_asked(data: st.DataObject) -> None:
    """Fetches, epoch requests and reports of any content are answered at most once each, and the HW never goes back."""
    cluster = Cluster(1)
    cluster.preload(1, history((2, 3, 0), (4, 2, 3)), hw=1)
    cluster.push(1, *(partition_image(tp, epoch=5, replicas=(1, 2, 3), isr=(1, 2)) for tp in (TP, TP1)))
    cluster.push(1, partition_image(TP1, epoch=5, replicas=(1, 2, 3), isr=(1, 2), leader=2))
    hw, asked = cluster.log(1).hw, []
    for _ in range(data.draw(st.integers(1, 12))):
        verb = data.draw(st.sampled_from("fetch fetch fetch produce ends offsets served forget gone tick".split()))
        if verb == "fetch":
            asked.append(cluster.request_id())
            stream = data.draw(st.sampled_from([None, 1, 2]))
            at_follower = data.draw(st.booleans())
            cluster.step(1, events.FetchArrived(cluster.now, asked[-1], data.draw(requests), stream, at_follower))
        elif verb == "produce":
            cluster.produce(batch(2), tp=data.draw(PLACES))
        elif verb == "ends":
            question = messages.EpochEndQuestion(data.draw(PLACES), data.draw(EPOCHS), data.draw(EPOCHS))
            cluster.step(1, events.EpochEndsAsked(cluster.now, cluster.request_id(), (question,)))
        elif verb == "offsets":
            offset_question = messages.OffsetQuestion(
                data.draw(PLACES), data.draw(st.integers(-9, 9)), data.draw(EPOCHS)
            )
            cluster.step(1, events.OffsetsAsked(cluster.now, cluster.request_id(), (offset_question,)))
        elif verb == "served":
            end = Offset(data.draw(st.integers(0, 9)))
            cluster.step(1, events.FetchServed(cluster.now, NodeId(data.draw(st.integers(1, 9))), ((TP, end, 0),)))
        elif verb == "forget":
            places = tuple(data.draw(st.lists(PLACES, max_size=2)))
            cluster.step(1, events.FetchForgotten(cluster.now, data.draw(st.integers(1, 3)), places))
        elif verb == "gone" and asked:
            cluster.step(1, events.CallGone(cluster.now, data.draw(st.sampled_from(asked))))
        else:
            cluster.advance(200)
        log = cluster.log(1)
        log.assert_sane()
        assert log.hw >= hw
        hw = log.hw
        assert all(sum(a.done for a in answers) <= 1 for answers in cluster.fetched.values())
        assert all(not any(a.done for a in answers[:-1]) for answers in cluster.fetched.values())


ends = st.none() | st.builds(lambda e, o: EpochEnd(LeaderEpoch(e), Offset(o)), st.integers(-1, 7), OFFSETS)
CODES = [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE]
refusals = st.none() | st.sampled_from(CODES).map(Refusal)
fetched = st.builds(
    messages.FetchedPartition, st.just(TP), refusals, st.none() | OFFSETS, st.none() | OFFSETS, ends,
    st.lists(st.builds(lambda n, b, e: batch(n, base=b, epoch=e),
                       st.integers(1, 3), OFFSETS, st.none() | st.integers(0, 7)),
             max_size=3).map(tuple),
)  # fmt: skip
offset_answers = st.builds(
    lambda offset, refusal: messages.OffsetAnswer(TP, offset, None, None, refusal), st.none() | OFFSETS, refusals
)


@given(st.data())
def test_a_follower_survives_whatever_it_is_answered(data: st.DataObject) -> None:
    """No answer makes a follower append an invalid batch, stop, or (fsync) truncate a committed record."""
    durability = data.draw(st.sampled_from(Durability))
    truncation = data.draw(st.sampled_from([Truncation.LEADER_EPOCH, Truncation.FETCH]))
    cluster = Cluster(2, rules=Rules(truncation=truncation, durability=durability))
    cluster.preload(2, history((2, 3, 0), (4, 2, 3)), hw=2)
    epoch = 5
    cluster.push(2, partition_image(epoch=epoch))
    for _ in range(data.draw(st.integers(1, 10))):
        follower = cluster.follower(2)
        before = cluster.ends(2)
        state, correlation = str(follower.state), follower.outstanding or 0
        if state == "fetching":
            answer = data.draw(fetched)
            cluster.step(2, events.FetchAnswered(cluster.now, NodeId(1), correlation, (answer,)))
        elif state == "truncating":
            end = messages.EpochEndAnswer(TP, data.draw(ends), data.draw(refusals))
            cluster.step(2, events.EpochEndsAnswered(cluster.now, NodeId(1), correlation, (end,)))
        elif state == "out_of_range":
            both = data.draw(offset_answers), data.draw(offset_answers)
            cluster.step(2, events.OffsetsAnswered(cluster.now, NodeId(1), correlation, both))
        else:
            epoch += 1
            cluster.push(2, partition_image(epoch=epoch, version=epoch))
        cluster.advance(1100, tick_ms=1100)
        cluster.log(2).assert_sane()
        assert cluster.log(2).leo == cluster.disks[2][TP].leo
        assert cluster.log(2).leo >= cluster.log(2).log_start_offset >= 0
        if durability is Durability.FSYNC:
            assert cluster.log(2).leo >= before[1], "cut below the own HW"


CONTRADICTIONS = {
    "a leader outside the ISR": partition_image(leader=1, isr=(2,), epoch=6, version=2),
    "an ISR outside the replicas": partition_image(leader=1, isr=(1, 9), epoch=6, version=2),
    "a replica named twice": partition_image(leader=1, isr=(1,), replicas=(1, 1), epoch=6, version=2),
    "an epoch below 0": partition_image(leader=1, epoch=6, version=-1),
    "a second leader in the same epoch": partition_image(leader=2, epoch=5, version=2),
}


@pytest.mark.parametrize("image", CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_metadata_that_cannot_be_true_is_ignored(image: messages.PartitionImage) -> None:
    """A node that receives contradictory metadata keeps its previous metadata and continues to lead."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(epoch=5))
    cluster.push(1, image)

    assert cluster.leader(1).image == partition_image(epoch=5)
    assert cluster.outcome(cluster.produce(batch(1), acks=Acks.LEADER)).refusal is None


@pytest.mark.parametrize("change", [{"configs": (("max.message.bytes", "x"),)}, {"name": "../x"}])
def test_topics_that_cannot_be_are_ignored(change: dict[str, Any]) -> None:
    """A setting that is not a number, or a name that leads out of the data directory, does not stop a node."""
    cluster = Cluster(1)
    image = metadata(node_epoch(1), partition_image(epoch=5))
    cluster.step(1, events.MetadataArrived(0, replace(image, topics=(replace(image.topics[0], **change),))))

    assert not cluster.cores[1].state.logs


def test_nobody_leads_in_an_epoch_that_its_log_has_passed() -> None:
    """A node whose log holds a later epoch than the controller assigns does not lead, and does not stop (TR18)."""
    cluster = Cluster(1)
    cluster.preload(1, history((4, 2, 0)))
    cluster.push(1, partition_image(epoch=3))
    assert cluster.cores[1].describe_partition(TP, 0) is None

    cluster.push(1, partition_image(epoch=5, version=2))

    assert cluster.leader(1).image.leader_epoch == 5


@pytest.mark.parametrize("isr", [(2,), (1, 9), (1, 1)])
def test_a_decision_that_cannot_be_is_asked_for_again(isr: tuple[int, ...]) -> None:
    """An ISR without the leader, or with nodes that are not replicas, is not adopted; the proposal is sent again."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(epoch=5, isr=(1,), replicas=(1, 2)))
    cluster.fetch(0, by=2, epoch=5)
    ((_, _, request),) = cluster.alters
    decision = messages.IsrDecision(
        TP,
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(5),
        isr=tuple(map(NodeId, isr)),
        partition_epoch=PartitionEpoch(2),
    )
    answer = messages.AlterPartitionAnswer(partitions=(decision,))
    cluster.step(1, events.AlterPartitionAnswered(cluster.now, request.request_sequence, answer))
    cluster.advance(31_000, tick_ms=1_000)

    assert cluster.leader(1).isr.committed == (1,)
    assert cluster.alters[-1][2].request_sequence == request.request_sequence + 1


def test_records_of_no_epoch_are_not_appended() -> None:
    """A batch without a leader epoch could never be compared with another log's."""
    cluster = Cluster(2)
    cluster.push(2, partition_image(epoch=5))
    number = cluster.follower(2).outstanding or 0
    wrong = messages.FetchedPartition(TP, high_watermark=Offset(2), batches=(batch(2, base=0),))
    cluster.step(2, events.FetchAnswered(cluster.now, NodeId(1), number, (wrong,)))

    assert cluster.ends(2) == (0, 0)
