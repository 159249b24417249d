"""When a coordinator answers (G5, G6, G8), also reads (G10), and what it reports as state events."""

from __future__ import annotations

import pytest
from cluster_of_cores import UNIX_MS, Cluster
from core_builders import TP, F, L, partition_image
from shard_cells import (
    ASKED_OF_OTHERS,
    BOTH,
    TOPIC,
    Cells,
    Get,
    batch_of,
    cells_of,
    code,
    coordinating,
    coordinators,
    put,
    shard_of,
)

from strandline.core.coordinator.machine import Context, Decision, Reports
from strandline.core.coordinator.serving import Coordinators
from strandline.core.coordinator.shard import ShardState
from strandline.core.coordinator.waiting import ReadBarrier
from strandline.core.errors import Outcome, Refusal
from strandline.core.log.effects import Compute, SendTxnMarkers
from strandline.core.log.events import CallGone, Computed, FetchArrived, Ticked, TxnMarkersAnswered
from strandline.core.log.saving_order import NodeTimings
from strandline.core.state_events import PartitionFailed
from strandline.core.transactions.messages import ProducerIdentity, TxnMarker, TxnMarkerAnswer
from strandline.core.types import LeaderEpoch, Offset
from strandline_sim.world.record_codec import IdentityCodec


@pytest.fixture
def cluster() -> Cluster:
    """Node 1 coordinates, node 2 follows."""
    return coordinating()


def test_a_write_is_answered_when_the_hw_has_passed_it(cluster: Cluster) -> None:
    """What was put is answered only after the follower has it, and not at the append."""
    request = cluster.ask_coordinator(put(a=1))

    assert request not in cluster.answered, "I30: a write was answered that may be undone"
    cluster.settle()
    assert cluster.answered[request] == "put"


def test_a_read_waits_for_the_write_that_it_shows(cluster: Cluster) -> None:
    """A read of a scope with an open write is answered with it, after it."""
    wrote = cluster.ask_coordinator(put(a=1))
    read = cluster.ask_coordinator(Get("g"))

    assert not {wrote, read} & set(cluster.answered)
    cluster.settle()
    assert list(cluster.answered)[-2:] == [wrote, read]
    assert cluster.answered[read] == {"a": 1}


def test_a_scope_without_open_writes_is_answered_at_once(cluster: Cluster) -> None:
    """The open write of one scope holds no other back."""
    cluster.ask_coordinator(put("g", a=1))
    read = cluster.ask_coordinator(Get("other"))

    assert cluster.answered[read] == {}


def test_an_answer_for_the_whole_shard_waits_for_all_its_writes(cluster: Cluster) -> None:
    """A read without a scope waits for the newest write of any."""
    cluster.ask_coordinator(put("g", a=1))
    cluster.ask_coordinator(put("h", b=2))
    read = cluster.ask_coordinator(Get(None))

    assert read not in cluster.answered
    cluster.settle()
    assert cluster.answered[read] == {"a": 1, "b": 2}
    assert cluster.answered[cluster.ask_coordinator(Get(None))] == {"a": 1, "b": 2}


def test_a_caller_that_waits_when_leadership_is_lost_hears_so(cluster: Cluster) -> None:
    """The caller gets NOT_COORDINATOR, with MAY_APPEAR for what was appended and NOT_APPENDED for what was not."""
    wrote = cluster.ask_coordinator(put(a=1))
    read = cluster.ask_coordinator(Get("g"))
    cluster.push(L, partition_image(leader=2, epoch=1, version=2, isr=(1, 2), min_isr=2))
    answers = [cluster.answered[wrote], cluster.answered[read]]
    assert [code(a) for a in answers] == ["NOT_COORDINATOR"] * 2
    assert [a.outcome for a in answers if isinstance(a, Refusal)] == [Outcome.MAY_APPEAR, Outcome.NOT_APPENDED]


def test_what_is_not_committed_in_time_is_refused_at_the_deadline(cluster: Cluster) -> None:
    """REQUEST_TIMED_OUT and MAY_APPEAR; a later answer of the same scope still leaves when its own write commits."""
    first = cluster.ask_coordinator(put(a=1), timeout=500)
    second = cluster.ask_coordinator(put(a=2), timeout=60_000)
    cluster.advance(600)
    answer = cluster.answered[first]
    assert (code(answer), answer.outcome) == ("REQUEST_TIMED_OUT", Outcome.MAY_APPEAR)
    assert second not in cluster.answered
    cluster.settle()
    assert cluster.answered[second] == "put"


def test_a_caller_that_left_holds_no_other_back(cluster: Cluster) -> None:
    """Its answer is dropped, and the one behind it in the same scope leaves as soon as it may."""
    gone = cluster.ask_coordinator(put(a=1))
    stays = cluster.ask_coordinator(put(a=2))
    cluster.step(L, CallGone(cluster.now, gone))
    cluster.settle()

    assert gone not in cluster.answered
    assert cluster.answered[stays] == "put"


def test_below_min_isr_nothing_is_written(cluster: Cluster) -> None:
    """A request that needs a write is refused and leaves no record; a plain read is answered."""
    cluster.push(L, partition_image(replicas=(1, 2), isr=(1,), elr=(2,), min_isr=2, version=2))
    leo = cluster.log(L).leo
    wrote = cluster.ask_coordinator(put(a=1))
    read = cluster.ask_coordinator(Get("g"))
    answer = cluster.answered[wrote]
    assert (code(answer), answer.outcome) == ("COORDINATOR_NOT_AVAILABLE", Outcome.NOT_APPENDED)
    assert cluster.log(L).leo == leo
    assert cluster.answered[read] == {}
    assert cells_of(cluster, L, TP).takes == []


def test_a_shard_that_always_waits_for_its_last_write_is_not_stalled() -> None:
    """While the HW moves writes are committed, so the machine acts, however long something has been open (G8)."""
    cluster = coordinating(stalled_after_ms=300)
    for count in range(10):
        cluster.ask_coordinator(put(a=count))
        while cluster.log(L).hw < count:
            cluster.deliver(L, F)
            cluster.deliver(F, L)
        cluster.advance(100)
        assert cluster.ends(L) == (count + 1, count)
    cells_of(cluster, L, TP).due.append(Decision(batches=(batch_of("g", ("due", 1)),), scope="g"))
    cluster.advance(100)

    assert cells_of(cluster, L, TP).of("g") == {"a": 9, "due": 1}


def test_time_below_min_isr_does_not_count(cluster: Cluster) -> None:
    """When the shard can write again, the machine gives every member its full time."""
    cluster.push(L, partition_image(replicas=(1, 2), isr=(1,), elr=(2,), min_isr=2, version=2))
    cluster.advance(300)
    excused = len(cells_of(cluster, L, TP).excused)
    cluster.push(L, partition_image(replicas=(1, 2), isr=(1, 2), min_isr=2, version=3))
    cluster.advance(100)

    assert len(cells_of(cluster, L, TP).excused) == excused + 1
    cluster.advance(300)
    assert len(cells_of(cluster, L, TP).excused) == excused + 1


def test_a_machine_does_not_act_while_nothing_is_committed(cluster: Cluster) -> None:
    """An open write that stays open stops the ticks of the machine, which begin again once it is committed."""
    cells = cells_of(cluster, L, TP)
    cluster.ask_coordinator(put(a=1), timeout=60_000)
    cluster.advance(3_000)
    leo = cluster.log(L).leo
    cells.due = [Decision(batches=(batch_of("g", ("b", 7)),), scope="g")]
    cluster.advance(300)
    assert cluster.log(L).leo == leo
    cluster.settle()
    cluster.advance(100, settle=True)

    assert cells.of("g") == {"a": 1, "b": 7}


def test_a_new_leader_serves_when_the_hw_has_reached_its_epoch(cluster: Cluster) -> None:
    """Until then COORDINATOR_LOAD_IN_PROGRESS: what it folded may not be committed (G6)."""
    cluster.ask_coordinator(put(a=1))
    cluster.settle()
    # Node 2 has a record that no HW covers yet when it is elected.
    cluster.ask_coordinator(put(a=2))
    while cluster.ends(F)[0] < cluster.ends(L)[0]:
        (cluster.deliver(F, L) if cluster.waiting(F, L) else cluster.deliver(L, F))
    cluster.push(F, partition_image(leader=2, epoch=1, version=2, min_isr=2))
    cluster.step(F, Ticked(cluster.now, UNIX_MS))
    assert shard_of(cluster, F, TP).state is ShardState.UNSETTLED, "I30: a coordinator shows what may be undone"
    early = cluster.ask_coordinator(Get("g"), node=F)
    assert code(cluster.answered[early]) == "COORDINATOR_LOAD_IN_PROGRESS"
    cluster.push(L, partition_image(leader=2, epoch=1, version=2, min_isr=2))
    cluster.settle()
    late = cluster.ask_coordinator(Get("g"), node=F)
    assert cluster.answered[late] == {"a": 2}


def test_a_node_that_does_not_lead_says_who_does(cluster: Cluster) -> None:
    """The refusal is NOT_COORDINATOR, and nothing is appended."""
    answer = cluster.answered[cluster.ask_coordinator(put(a=1), node=F)]

    assert (code(answer), answer.outcome) == ("NOT_COORDINATOR", Outcome.NOT_APPENDED)


def test_what_is_written_carries_the_wall_clock(cluster: Cluster) -> None:
    """The context of a decision has the wall clock of the last tick, and the time since."""
    cluster.now += 30
    cluster.ask_coordinator(put(a=1))

    assert cells_of(cluster, L, TP).unix_ms == [UNIX_MS + cluster.now]


def test_a_request_that_needs_too_large_a_batch_is_refused_whole() -> None:
    """The refusal is MESSAGE_TOO_LARGE, and nothing of the request is in the log."""
    cluster = coordinating(max_batch_bytes=200)
    leo = cluster.log(L).leo
    request = cluster.ask_coordinator(put(a=1, b=2, c=3))

    assert code(cluster.answered[request]) == "MESSAGE_TOO_LARGE"
    assert cluster.log(L).leo == leo


def test_writes_without_a_request_are_parted_into_batches_that_fit() -> None:
    """A decision of a tick that needs a larger batch is written as several, all its records in order."""
    cluster = coordinating(max_batch_bytes=200)
    cells = cells_of(cluster, L, TP)
    cells.due = [Decision(batches=(batch_of("g", *((f"k{i}", i) for i in range(7))),), scope="g")]
    cluster.advance(100)
    written = [payload for _, payload in cluster.disks[L][TP].batches]
    assert [len(batch) for batch in written] == [1, 2, 2, 2]
    assert [record.value for batch in written for record in batch] == list(range(7))


def test_notes_of_a_decision_are_given_when_taken_and_when_answered(cluster: Cluster) -> None:
    """``taken`` at the append, ``answered`` when the answer leaves; a refused decision leaves neither."""
    cells = cells_of(cluster, L, TP)
    cluster.ask_coordinator(put(a=1))
    assert (len(cells.takes), len(cells.answers)) == (1, 0)
    cluster.settle()
    assert len(cells.answers) == 1


def test_so_many_wait_and_no_more() -> None:
    """Beyond the bound a request is refused before it is decided."""
    cluster = coordinating(max_waiting=2)
    for value in range(2):
        cluster.ask_coordinator(put(a=value))
    refused = cluster.ask_coordinator(put(a=3))

    assert code(cluster.answered[refused]) == "THROTTLING_QUOTA_EXCEEDED"
    assert len(cells_of(cluster, L, TP).takes) == 2


def test_a_long_computation_is_done_elsewhere_and_its_result_written(cluster: Cluster) -> None:
    """A decision's work leaves as an effect; its result is given to the machine and what it decides is appended."""
    cells = cells_of(cluster, L, TP)
    wanted = Decision(batches=(batch_of("g", ("late", 5)),), scope="g")
    cells.due = [Decision(scope="g", work=lambda: wanted)]
    cluster.advance(100)
    (effect,) = cluster.wished(L, Compute)
    cluster.step(L, Computed(cluster.now, TP, effect.leader_epoch, effect.work()))

    assert cells.of("g") == {"late": 5}


def test_the_result_for_an_earlier_reign_is_dropped(cluster: Cluster) -> None:
    """What was computed for a shard that is gone says nothing to the next one."""
    wanted = Decision(batches=(batch_of("g", ("late", 5)),), scope="g")
    cluster.step(L, Computed(cluster.now, TP, LeaderEpoch(7), wanted))

    assert cells_of(cluster, L, TP).of("g") == {}


def test_others_hear_of_a_decision_when_it_is_committed(cluster: Cluster) -> None:
    """What a decision leads to at others leaves when the HW has passed its records, once, not at the append (X8)."""
    cluster.ask_coordinator(put(a=1, shown=True))

    assert not cluster.wished(L, SendTxnMarkers)
    cluster.settle()
    assert cluster.wished(L, SendTxnMarkers) == [ASKED_OF_OTHERS]
    cluster.ask_coordinator(put(b=1))
    cluster.settle()
    assert cluster.wished(L, SendTxnMarkers) == [ASKED_OF_OTHERS]


def test_what_a_decision_wants_of_others_at_once_leaves_with_it(cluster: Cluster) -> None:
    """`Decision.effects` leave in the step of the decision, behind its records."""
    cells_of(cluster, L, TP).due = [Decision(effects=(ASKED_OF_OTHERS,))]
    cluster.advance(100)

    assert cluster.wished(L, SendTxnMarkers) == [ASKED_OF_OTHERS]


def test_an_answer_of_others_is_heard_in_its_reign_alone(cluster: Cluster) -> None:
    """The machine hears an answer for its own leader epoch and writes what that leads to; another's is dropped."""
    cells = cells_of(cluster, L, TP)
    answer = TxnMarkerAnswer(TxnMarker("i", ProducerIdentity(1, 1), True, TP))
    epoch = shard_of(cluster, L, TP).leader.image.leader_epoch
    cluster.step(L, TxnMarkersAnswered(cluster.now, TP, LeaderEpoch(epoch + 1), (answer,)))
    assert cells.heard_of == []

    cluster.step(L, TxnMarkersAnswered(cluster.now, TP, epoch, (answer, answer)))

    assert cells.heard_of == [answer, answer]
    assert cells.of("heard") == {"answers": 2}


# Read barriers: a read is answered only by who still led when it came (G10).


def _with_barrier(*, streams: bool = True) -> Cluster:
    return coordinating(streams=streams, timings=NodeTimings(replica_fetch_wait_max_ms=10_000))


def test_a_read_with_a_barrier_waits_for_one_round_trip() -> None:
    """The parked fetch of the follower is answered at once with the barrier, and its next fetch repeats it."""
    cluster = _with_barrier()
    read = cluster.ask_coordinator(Get("g", fenced=True))

    assert read not in cluster.answered
    assert cluster.waiting(L, F) == 1
    cluster.deliver(L, F)
    assert cluster.waiting(F, L) == 1
    cluster.deliver(F, L)
    assert cluster.answered[read] == {}


def test_a_barrier_that_was_repeated_wakes_no_fetch_again() -> None:
    """After the round trip the follower's fetch is parked as before."""
    cluster = _with_barrier()
    cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()

    assert (cluster.waiting(L, F), cluster.waiting(F, L)) == (0, 0)
    assert cluster.cores[L].parked[1] == 1


def test_requests_that_share_a_barrier_look_at_no_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """What followers have repeated is looked at when a barrier begins and when one of them fetches, not again for each
    of 50 requests that come in between."""
    cluster = _with_barrier()
    cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()
    looks: list[int] = []
    look = ReadBarrier.look
    monkeypatch.setattr(ReadBarrier, "look", lambda barrier: looks.append(barrier.passed) or look(barrier))
    later = [cluster.ask_coordinator(Get("g", fenced=True)) for _ in range(50)]

    assert looks == []
    cluster.advance(100, settle=True)
    assert set(later) <= set(cluster.answered)
    assert len(looks) <= 3


def test_requests_share_the_barrier_that_begins_next() -> None:
    """Within 100 ms of a barrier's beginning the next ones wait for one together, which begins at a tick."""
    cluster = _with_barrier()
    first = cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()
    later = [cluster.ask_coordinator(Get("g", fenced=True)) for _ in range(3)]
    cluster.settle()
    assert first in cluster.answered
    assert not set(later) & set(cluster.answered)
    before = cluster.leader().barrier
    cluster.advance(100, settle=True)

    assert set(later) <= set(cluster.answered)
    assert cluster.leader().barrier == before + 1


def test_a_leader_alone_waits_for_no_barrier() -> None:
    """With one replica a barrier passes as it begins."""
    cluster = Cluster(1, coordinators=coordinators())
    cluster.push_all(partition_image(replicas=(1,), isr=(1,)))
    cluster.advance(100, settle=True)

    assert cluster.answered[cluster.ask_coordinator(Get("g", fenced=True))] == {}


def test_answers_of_a_scope_leave_in_order_behind_a_barrier() -> None:
    """A write that is committed waits for the read before it, whose barrier has not passed."""
    cluster = _with_barrier()
    cluster.ask_coordinator(Get("g", fenced=True))
    cluster.settle()
    read = cluster.ask_coordinator(Get("g", fenced=True))
    wrote = cluster.ask_coordinator(put(a=1))
    cluster.settle()
    assert not {read, wrote} & set(cluster.answered)
    cluster.advance(100, settle=True)

    assert list(cluster.answered)[-2:] == [read, wrote]


def test_a_barrier_that_does_not_pass_in_time_is_no_answer() -> None:
    """The read gets COORDINATOR_NOT_AVAILABLE when its time is over."""
    cluster = _with_barrier()
    read = cluster.ask_coordinator(Get("g", fenced=True), timeout=300)
    cluster.advance(400)
    answer = cluster.answered[read]
    assert (code(answer), answer.outcome) == ("COORDINATOR_NOT_AVAILABLE", Outcome.NOT_APPENDED)


def test_below_min_isr_a_wait_for_a_barrier_ends_at_once() -> None:
    """A shrunken ISR ends the wait, and later requests are refused as they come."""
    cluster = _with_barrier()
    waits = cluster.ask_coordinator(Get("g", fenced=True))
    cluster.push(L, partition_image(replicas=(1, 2), isr=(1,), elr=(2,), min_isr=2, version=2))
    late = cluster.ask_coordinator(Get("g", fenced=True))

    assert [code(cluster.answered[r]) for r in (waits, late)] == ["COORDINATOR_NOT_AVAILABLE"] * 2


def test_a_member_that_leaves_the_isr_is_waited_for_no_longer() -> None:
    """With enough members left, who was removed cannot be elected and need not repeat the barrier."""
    cluster = Cluster(1, 2, 3, coordinators=coordinators(), streams=True)
    three = {"replicas": (1, 2, 3), "min_isr": 2}
    cluster.push_all(partition_image(isr=(1, 2, 3), **three))  # type: ignore[arg-type]
    cluster.settle()
    cluster.advance(100, settle=True)
    read = cluster.ask_coordinator(Get("g", fenced=True))
    cluster.deliver(L, F)
    cluster.deliver(F, L)
    assert read not in cluster.answered
    cluster.push(L, partition_image(isr=(1, 2), version=2, **three))  # type: ignore[arg-type]

    assert cluster.answered[read] == {}


def test_tr40_a_fetch_from_before_the_election_proves_nothing() -> None:
    """B's fetch is slow, B is elected and takes a write, a read comes to A, then B's old fetch: A does not answer."""
    cluster = _with_barrier()
    # The write that A and B share, and B's next fetch, which is slow.
    cluster.ask_coordinator(put(a=1))
    cluster.deliver(L, F)
    slow = cluster.links[F, L].popleft()
    # B is elected; node 1 does not know it. C, the third replica, is not needed: B's min ISR is 1.
    cluster.push(F, partition_image(leader=2, epoch=1, version=2, isr=(2,), min_isr=1))
    cluster.advance(100)
    taken = cluster.ask_coordinator(put(a=2), node=F)
    assert cluster.answered[taken] == "put"
    read = cluster.ask_coordinator(Get("g", fenced=True))
    event = slow.arrive()
    assert isinstance(event, FetchArrived)
    cluster.step(L, event)

    assert cluster.log(L).hw == cluster.log(L).leo
    assert read not in cluster.answered, "I30: the read missed a write that had been answered"
    cluster.advance(6_000)
    assert code(cluster.answered[read]) == "COORDINATOR_NOT_AVAILABLE"


def test_an_ordinary_partition_carries_no_barrier() -> None:
    """Neither the fetch answers of an ordinary partition nor its followers' fetches have a barrier."""
    cluster = Cluster(1, 2)
    cluster.push_all(BOTH)
    cluster.settle()
    cluster.produce()
    cluster.settle()

    assert cluster.leader().barrier is None
    assert cluster.follower(F).barrier_seen is None
    assert cluster.leader(tp=TP).progress[F].barrier_seen == 0


# What a shard lets out as state events: what its machine reports, and that it has loaded.


ALONE = partition_image(replicas=(1,), isr=(1,))


class Reporting(Cells):
    """Reports each request; the event is any."""

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self._reports = reports

    def decide(self, request: object, context: Context) -> Decision:
        self._reports.add(PartitionFailed("asked", Offset(0), Offset(0), None, self._reports.leader_epoch))
        return super().decide(request, context)


def test_a_report_leaves_with_the_step_that_made_it() -> None:
    """The report is at the coordinator's own partition and in its epoch, once."""
    cluster = Cluster(1, coordinators=Coordinators(codec=IdentityCodec(), machines={TOPIC: Reporting}))
    cluster.push_all(ALONE)
    cluster.advance(100, settle=True)
    cluster.ask_coordinator(Get("g"))
    (emit,) = cluster.emitted(L, "PARTITION_FAILED")

    assert emit.tp == TP
    assert isinstance(emit.event, PartitionFailed)
    assert emit.event.leader_epoch == LeaderEpoch(0)


def test_a_coordinator_reports_what_it_loaded() -> None:
    """Keys and bytes that the log has, in the epoch that it serves."""
    cluster = Cluster(1, coordinators=coordinators())
    cluster.push_all(ALONE)
    cluster.advance(100, settle=True)
    for value in range(12):
        cluster.ask_coordinator(put(**{f"c{value % 5}": value}))
        cluster.settle()
    cluster.restart(L)
    cluster.push(L, partition_image(replicas=(1,), isr=(1,), epoch=1, version=2))
    cluster.advance(100, settle=True)
    cluster.settle()
    first, second = (each.event for each in cluster.emitted(L, "COORDINATOR_LOAD"))

    assert (first.n_keys, first.bytes, first.leader_epoch) == (0, 0, LeaderEpoch(0))
    assert (second.n_keys, second.leader_epoch) == (5, LeaderEpoch(1))
    assert second.bytes > 0
