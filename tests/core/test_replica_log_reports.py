"""What a node reports about its logs, when, and what it stores so that the report is true (M65, M66, M68, M69)."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, TP1, batch, fetched_part, history, partition_image

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.log import effects as want, events
from strandline.core.log.proposals import RETRY_MS
from strandline.core.types import Rules, Truncation

FETCH = Rules(truncation=Truncation.FETCH)


def leaderless(*tps: Any, rules: Rules | None = None, **image: Any) -> Cluster:
    """Node 2 has a log of ten records and learns that its partition has no leader."""
    cluster = Cluster(2, rules=rules)
    for tp in tps or (TP,):
        cluster.preload(2, history((1, 10, 0)), hw=4, tp=tp)
    cluster.push(2, *(partition_image(tp, leader=None, epoch=5, **image) for tp in tps or (TP,)))
    return cluster


def reports(cluster: Cluster) -> list[want.SendReplicaLogs]:
    return cluster.wished(2, want.SendReplicaLogs)


def answer(cluster: Cluster, code: ErrorCode | None = None) -> None:
    """The controller accepted the latest report, or rejected it."""
    refusal = None if code is None else Refusal(code)
    cluster.step(2, events.ReplicaLogsAnswered(cluster.now, reports(cluster)[-1].report_id, refusal))


def test_a_log_without_a_leader_is_reported_as_it_is() -> None:
    """M65: the report has start, end, epochs and HW of the log, in the leader epoch without a leader."""
    (report,) = reports(leaderless())
    (log,) = report.request.logs

    assert (log.tp, log.leader_epoch, log.log_start_offset, log.leo, log.high_watermark) == (TP, 5, 0, 10, 4)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs] == [(1, 0)]
    assert (log.reconciled_epoch, log.refused_cut_to) == (None, None)


def test_all_logs_without_a_leader_are_in_one_report() -> None:
    """A blackout of a node with many partitions costs one call, not one per partition."""
    (report,) = reports(leaderless(TP, TP1))

    assert {log.tp for log in report.request.logs} == {TP, TP1}


def test_a_report_that_was_taken_is_not_sent_again() -> None:
    """A report for the same epoch is not sent twice to one controller; for a newer epoch it is sent again."""
    cluster = leaderless()
    answer(cluster)
    cluster.advance(10_000)
    quiet = len(reports(cluster))
    cluster.push(2, partition_image(leader=None, epoch=6, version=2))

    assert quiet == 1
    assert [report.request.logs[0].leader_epoch for report in reports(cluster)] == [5, 6]


def test_a_report_that_was_refused_is_sent_again_after_a_while() -> None:
    """A report that the controller could not accept is retried, but not in a tight loop."""
    cluster = leaderless()
    answer(cluster, ErrorCode.NETWORK_EXCEPTION)
    cluster.advance(RETRY_MS - 100)
    before = len(reports(cluster))
    cluster.advance(200)

    assert (before, len(reports(cluster))) == (1, 2)


def test_another_controller_is_reported_again() -> None:
    """M65: reports live in the memory of one controller epoch."""
    cluster = leaderless()
    answer(cluster)
    cluster.push(2, partition_image(leader=None, epoch=5), controller_epoch=2)

    assert len(reports(cluster)) == 2


def test_a_log_is_reported_once_it_is_durable() -> None:
    """A2: records that a power failure could still remove must not win an election."""
    cluster = Cluster(2, rules=FETCH, hold_flushes=True)
    cluster.push(2, partition_image(epoch=1))
    cluster.fetch_answered(fetched_part(batch(3, base=0, epoch=1)))
    cluster.push(2, partition_image(leader=None, epoch=2, version=2))
    before = len(reports(cluster))
    cluster.flush(2)

    assert before == 0
    assert reports(cluster)[-1].request.logs[0].leo == 3


@pytest.mark.parametrize(
    "image", [{"observers": (2,), "replicas": (1,), "isr": (1,)}, {"rules": Rules(truncation=Truncation.KIP_101)}]
)
def test_who_is_not_asked_does_not_report(image: dict[str, Any]) -> None:
    """An observer never leads (M60), and under a historic rule elections compare nothing."""
    assert reports(leaderless(**image)) == []


def test_a_refused_cut_is_reported() -> None:
    """M41, M69: the follower stops, and reports to the controller where it would have had to truncate."""
    cluster = Cluster(2)
    cluster.preload(2, history((5, 10, 0)), hw=8)
    cluster.push(2, partition_image(epoch=6))
    cluster.epoch_ended(5, 6)
    (report,) = reports(cluster)

    assert (report.request.logs[0].leader_epoch, report.request.logs[0].refused_cut_to) == (6, 6)
    assert cluster.ends(2) == (10, 8)


def test_a_leader_writes_its_epoch_down_before_it_appends() -> None:
    """M66: one durable write with the step that begins to lead, for all partitions of that step."""
    cluster = Cluster(1)
    effects = cluster.push(1, partition_image(epoch=3), partition_image(TP1, epoch=4))
    cluster.produce()
    (saved,) = cluster.wished(1, want.SaveReconciledEpochs)

    assert saved in effects
    assert saved.epochs == {TP: 3, TP1: 4}


def test_a_follower_that_asked_writes_it_down_before_its_first_fetch() -> None:
    """M66: the leader counts a fetch, so its proof must be on disk by then."""
    cluster = Cluster(2)
    cluster.preload(2, history((5, 10, 0)))
    cluster.push(2, partition_image(epoch=6))
    effects = cluster.epoch_ended(5, 10)
    kinds = [type(effect) for effect in effects if isinstance(effect, want.SaveReconciledEpochs | want.SendFetch)]

    assert kinds == [want.SaveReconciledEpochs, want.SendFetch]


def test_a_follower_that_asks_by_fetching_writes_it_down_before_it_appends() -> None:
    """M66 with truncation=fetch: the answer shows that the logs agree; its records are appended after the write."""
    cluster = Cluster(2, rules=FETCH)
    cluster.push(2, partition_image(epoch=6))
    before = list(cluster.wished(2, want.SaveReconciledEpochs))
    effects = cluster.fetch_answered(fetched_part(batch(2, base=0, epoch=6)))
    kinds = [
        type(effect) for effect in effects if isinstance(effect, want.SaveReconciledEpochs | want.AppendReplicated)
    ]

    assert before == []
    assert kinds == [want.SaveReconciledEpochs, want.AppendReplicated]


def test_an_epoch_that_is_written_is_not_written_again() -> None:
    """A leader epoch is written once, not with every fetch."""
    cluster = Cluster(2, rules=FETCH)
    cluster.push(2, partition_image(epoch=6))
    for base in range(3):
        cluster.fetch_answered(fetched_part(batch(1, base=base, epoch=6)))

    assert [saved.epochs for saved in cluster.wished(2, want.SaveReconciledEpochs)] == [{TP: 6}]


def test_a_new_leader_and_an_isr_below_min_isr_write_the_high_watermark_down() -> None:
    """M68: durable, one write for the step; an ISR that is large enough writes nothing."""
    cluster = Cluster(1)
    cluster.push(1, partition_image(epoch=3, isr=(1, 2), min_isr=2))
    led = list(cluster.wished(1, want.SaveHighWatermarks))
    cluster.push(1, partition_image(epoch=3, version=2, isr=(1, 2), min_isr=2))
    same = list(cluster.wished(1, want.SaveHighWatermarks))
    cluster.push(1, partition_image(epoch=3, version=3, isr=(1,), elr=(2,), min_isr=2))
    below = list(cluster.wished(1, want.SaveHighWatermarks))

    assert [len(led), len(same), len(below)] == [1, 1, 2]
    assert all(saved.durable for saved in below)
