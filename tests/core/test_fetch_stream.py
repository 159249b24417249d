"""FetchStream: what the leader must answer, when it may send nothing, and whether enough bytes are available."""

from __future__ import annotations

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, F, batch, fetch_part, fetch_request, held, history, partition_image
from hypothesis import given, strategies as st

from strandline.core.errors import ErrorCode
from strandline.core.log import events
from strandline.core.log.effects import AnswerFetch
from strandline.core.log.leader import LeaderReplica
from strandline.core.log.replica_log import PLENTY_BYTES, REMEMBERED_APPENDS, SizeLedger
from strandline.core.messages import FetchPartition
from strandline.core.types import FetchHw, Offset, Rules, TopicPartition, Truncation

STREAM = 44


def leading(*tps: TopicPartition, isr: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    """Node 1 leads some partitions for nodes 1, 2 and 3; there are no other cores."""
    cluster = Cluster(1)
    cluster.push(1, *(partition_image(tp, replicas=(1, 2, 3), isr=isr) for tp in tps or (TP,)))
    return cluster


def name(cluster: Cluster, *tps: TopicPartition, wait: int = 500, min_bytes: int = 1, offset: int | None = None) -> int:
    """Replica 2 names partitions on its stream, each at the leader's log end unless given otherwise."""
    request = cluster.request_id()
    for tp in tps:
        cluster.serve(cluster.log(1, tp).leo, by=2, tp=tp)
    parts = tuple(cluster.honest_part(cluster.log(1, tp).leo if offset is None else offset, tp=tp) for tp in tps)
    asked = fetch_request(*parts, replica=2, wait=wait, min_bytes=min_bytes)
    cluster.step(1, events.FetchArrived(cluster.now, request, asked, STREAM))
    return request


def answers(cluster: Cluster, request: int) -> list[tuple[list[TopicPartition], bool]]:
    """Which partitions each answer to a request carried, and whether it was the last."""
    return [([r.tp for r in a.results], a.done) for a in cluster.fetched.get(request, [])]


def test_partitions_are_answered_one_by_one() -> None:
    """An answer carries any subset of a message's partitions; the last one closes the message."""
    cluster = leading(TP, TP1)
    request = name(cluster, TP, TP1)
    cluster.produce(batch(), tp=TP1)
    first = answers(cluster, request)
    cluster.produce(batch(), tp=TP)

    assert first == [([TP1], False)]
    assert answers(cluster, request) == [([TP1], False), ([TP], True)]


def test_what_is_ripe_is_answered_at_once() -> None:
    """Bytes and errors are answered on arrival, the rest stays parked."""
    cluster = leading(TP, TP1)
    cluster.produce(batch(), tp=TP)
    request = cluster.request_id()
    parts = (
        fetch_part(0, epoch=0, log_start=0),
        fetch_part(0, tp=TP1, epoch=0, log_start=0),
        fetch_part(0, tp=TP._replace(partition=9), epoch=0, log_start=0),
    )
    cluster.step(1, events.FetchArrived(0, request, fetch_request(*parts, replica=2, wait=500), STREAM))

    assert answers(cluster, request) == [([TP, TP._replace(partition=9)], False)]
    assert cluster.cores[1].parked[1] == 1


def test_naming_again_replaces() -> None:
    """Naming a partition again replaces its older fetch, which is closed empty when no partition is left in it."""
    cluster = leading(TP, TP1)
    first = name(cluster, TP, TP1)
    second = name(cluster, TP)
    third = name(cluster, TP1)
    before = answers(cluster, first)
    cluster.produce(batch(), tp=TP)
    cluster.produce(batch(), tp=TP1)

    assert before == [([], True)]
    assert answers(cluster, first) == before
    assert answers(cluster, second) == [([TP], True)]
    assert answers(cluster, third) == [([TP1], True)]


def test_silence_when_there_is_no_news() -> None:
    """At max_wait a partition is answered only if its HW or log start differs from the last one sent on the stream."""
    cluster = leading()
    never_reported = name(cluster, TP)
    cluster.advance(600)
    reported = name(cluster, TP)
    cluster.advance(10_000)

    assert answers(cluster, never_reported) == [([TP], True)]
    assert answers(cluster, reported) == []
    assert cluster.cores[1].parked == (0, 1)


def test_a_new_high_watermark_is_reported_at_max_wait() -> None:
    """A HW that rose while the fetch was parked is sent at the end of the wait, and not before (M22)."""
    cluster = leading(isr=(1, 3))
    cluster.produce(batch())
    name(cluster, TP)
    cluster.advance(500)
    request = name(cluster, TP)
    cluster.fetch(0, by=3)
    cluster.fetch(1, by=3)
    risen = cluster.log(1).hw
    cluster.advance(400)
    early = answers(cluster, request)
    cluster.advance(200)
    result = cluster.result(request)

    assert risen == 1
    assert early == []
    assert result.high_watermark == 1


def test_a_new_log_start_is_reported_at_max_wait() -> None:
    """A log start that moved is sent at max_wait as well."""
    cluster = leading(isr=(1,))
    cluster.produce(batch(), batch())
    cluster.fetch(2, by=2)
    cluster.fetch(2, by=3)
    name(cluster, TP)
    cluster.advance(600)
    request = name(cluster, TP)
    cluster.delete_records(1)
    cluster.advance(600)
    result = cluster.result(request)

    assert (result.high_watermark, result.log_start_offset) == (2, 1)


def test_forgetting_ends_the_fetch() -> None:
    """forgotten_topics_data ends the partition's fetch, and a message without partitions is closed."""
    cluster = leading(TP, TP1)
    request = name(cluster, TP, TP1)
    cluster.step(1, events.FetchForgotten(0, STREAM, (TP,)))
    half = answers(cluster, request)
    cluster.step(1, events.FetchForgotten(0, STREAM, (TP1,)))
    cluster.produce(batch())

    assert half == []
    assert answers(cluster, request) == [([], True)]
    assert cluster.cores[1].parked[1] == 0


def test_the_end_of_a_stream_ends_its_fetches() -> None:
    """A stream that ended gets no more answers, and other streams are not affected."""
    cluster = leading()
    request = name(cluster, TP)
    other = cluster.fetch(0, by=3, wait=500, stream=STREAM + 1)
    cluster.step(1, events.FetchForgotten(0, STREAM))
    cluster.produce(batch())

    assert answers(cluster, request) == []
    assert answers(cluster, other) == [([TP], True)]


def test_a_new_stream_was_sent_nothing() -> None:
    """A HW sent on one stream does not suppress the answer on the next stream of the same node."""
    cluster = leading()
    name(cluster, TP)
    cluster.advance(600)
    cluster.step(1, events.FetchForgotten(cluster.now, STREAM))
    request = name(cluster, TP)
    cluster.advance(600)

    assert answers(cluster, request) == [([TP], True)]


def test_min_bytes_counts_per_answer() -> None:
    """min_bytes is counted over the content of one answer."""
    cluster = leading(TP, TP1)
    request = name(cluster, TP, TP1, min_bytes=250)
    cluster.produce(batch(2), tp=TP)
    before = answers(cluster, request)
    cluster.produce(batch(1), tp=TP1)

    assert before == []
    assert answers(cluster, request) == [([TP, TP1], True)]


def test_errors_do_not_wait_for_min_bytes() -> None:
    """An error is returned at once, regardless of min_bytes."""
    cluster = leading()
    request = name(cluster, TP, min_bytes=1000)
    cluster.push(1, partition_image(replicas=(1, 2, 3), isr=(1, 2, 3), leader=3, epoch=1, version=2))
    result = cluster.result(request)

    assert result.refusal.code is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("streams", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("truncation", [Truncation.LEADER_EPOCH, Truncation.FETCH])
def test_the_high_watermark_arrives_after_a_divergence(streams: bool, truncation: Truncation) -> None:
    """M32: a follower ignores the HW of a diverging answer, so it does not count as sent; the next fetch brings it."""
    cluster = Cluster(1, 2, streams=streams, rules=Rules(truncation=truncation))
    cluster.preload(1, history((0, 4, 0)), hw=4)
    cluster.preload(2, history((0, 4, 0), (1, 2, 4)), hw=1)
    cluster.push_all(partition_image(epoch=2, isr=(1,)))
    cluster.settle()
    cluster.advance(2000, settle=True)

    assert cluster.cuts(2) == [4]
    assert cluster.ends(2) == (4, 4)


@pytest.mark.parametrize("streams", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("first_to_hear", [1, 3], ids=["leader hears first", "follower hears first"])
def test_the_high_watermark_arrives_after_a_change_of_leader_and_back(streams: bool, first_to_hear: int) -> None:
    """M7: a HW sent in an older epoch may be unknown again; a stream that outlives epochs sends it again."""
    cluster = Cluster(1, 2, 3, streams=streams)
    members: dict[str, tuple[int, ...]] = {"replicas": (1, 2, 3), "isr": (1, 2, 3)}
    cluster.push_all(partition_image(leader=1, epoch=0, version=1, **members))
    cluster.produce(batch(), batch())
    cluster.settle()
    cluster.advance(1000, settle=True)
    first = cluster.ends(3)
    # A new leader whose own HW lags and does not move (M18) lowers the HW of its followers.
    cluster.log(2).hw = Offset(0)
    lagging = partition_image(leader=2, epoch=1, version=2, min_isr=4, **members)
    for node in (2, first_to_hear, 4 - first_to_hear):
        cluster.push(node, lagging)
        cluster.settle()
    cluster.advance(1000, settle=True)
    lowered = cluster.ends(3)
    cluster.push(1, partition_image(leader=1, epoch=2, version=3, **members))
    cluster.push(3, partition_image(leader=1, epoch=2, version=3, **members))
    cluster.push(2, partition_image(leader=1, epoch=2, version=3, **members))
    cluster.settle()
    cluster.advance(1000, settle=True)

    assert first == (2, 2)
    assert lowered == (2, 0)
    assert cluster.ends(3) == (2, 2)


@pytest.mark.parametrize("fetch_hw", list(FetchHw))
def test_idle_partitions_are_cheap(fetch_hw: FetchHw) -> None:
    """A follower that is up to date sends and receives nothing for as long as nothing happens."""
    cluster = Cluster(1, 2, streams=True, rules=Rules(fetch_hw=fetch_hw))
    cluster.push_all(partition_image())
    cluster.produce(batch())
    cluster.settle()
    cluster.advance(2000, settle=True)
    before = len(cluster.wished(1, AnswerFetch))
    cluster.advance(20_000, tick_ms=1000, settle=True)

    assert cluster.ends(2) == (1, 1)
    assert len(cluster.wished(1, AnswerFetch)) == before
    assert cluster.leader().progress[F].remote_leo == 1


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_nodes_keep_nothing_of_a_deleted_partition(order: tuple[int, int]) -> None:
    """A stream of fetches goes on, however many topics are created and deleted meanwhile; in either order, and also of
    what was not in the follower's last message."""
    cluster = Cluster(1, 2, streams=True)
    other = partition_image(TopicPartition("other", 0))
    cluster.push_all(partition_image(), other)
    cluster.produce(batch())
    cluster.settle()
    cluster.advance(2000, settle=True)
    for node in order:
        cluster.push(node, deleted=(TP.topic_id,))
        cluster.settle()
    cluster.advance(2000, settle=True)

    for node in order:
        assert set(held(cluster.cores[node], TopicPartition)) == {other.tp}


def test_the_end_of_a_wait_looks_only_at_partitions_with_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the wait is over, only the one of two parked partitions whose HW rose is looked at."""
    cluster = leading(TP, TP1, isr=(1, 3))
    name(cluster, TP, TP1)
    cluster.advance(600)
    cluster.produce(batch())
    name(cluster, TP, TP1)
    cluster.fetch(0, by=3)
    cluster.fetch(1, by=3)
    looked: list[TopicPartition] = []
    diverging = LeaderReplica.diverging

    def noted(leader: LeaderReplica, fetch: FetchPartition, *, by_replica: bool = True) -> object:
        looked.append(fetch.tp)
        return diverging(leader, fetch, by_replica=by_replica)

    monkeypatch.setattr(LeaderReplica, "diverging", noted)
    cluster.advance(600)

    assert set(looked) == {TP}


# Whether enough bytes are available after an offset, answered from memory alone.


def test_bytes_between_two_batch_ends() -> None:
    """Bytes are those of the batches between two offsets."""
    sizes = SizeLedger(Offset(0))
    sizes.appended(Offset(3), 300)
    sizes.appended(Offset(5), 80)

    assert sizes.bytes_between(Offset(0), Offset(5)) == 380
    assert sizes.bytes_between(Offset(3), Offset(5)) == 80
    assert sizes.bytes_between(Offset(5), Offset(5)) == 0


def test_older_than_remembered_counts_as_enough() -> None:
    """M23: an offset from before the remembered ones is answered at once."""
    sizes = SizeLedger(Offset(100))
    sizes.appended(Offset(101), 10)

    assert sizes.bytes_between(Offset(50), Offset(101)) == PLENTY_BYTES


def test_memory_is_bounded() -> None:
    """Only the most recent appends are remembered."""
    sizes = SizeLedger(Offset(0))
    for leo in range(1, 5 * REMEMBERED_APPENDS):
        sizes.appended(Offset(leo), 10)

    assert len(sizes._ends) <= 2 * REMEMBERED_APPENDS
    assert sizes.bytes_between(Offset(5 * REMEMBERED_APPENDS - 11), Offset(5 * REMEMBERED_APPENDS - 1)) == 100


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=40), st.data())
def test_never_less_than_is_there(steps: list[tuple[bool, int]], data: st.DataObject) -> None:
    """Between batch ends the answer is never below the true count of bytes, also after truncations."""
    sizes, ends = SizeLedger(Offset(0)), [0]
    for cuts, number in steps:
        if cuts:
            ends = ends[: max(1, len(ends) - number)]
            sizes.truncated(Offset(ends[-1]))
        else:
            ends.append(ends[-1] + number)
            sizes.appended(Offset(ends[-1]), 10 * number)
    start, end = sorted(data.draw(st.tuples(st.sampled_from(ends), st.sampled_from(ends))))

    assert sizes.bytes_between(Offset(start), Offset(end)) >= 10 * (end - start)
