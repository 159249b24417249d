"""The historic rules by name, side by side; what each loses is in the scenarios `tr01` to `tr04` (T41)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cluster_of_cores import Cluster
from core_builders import TP, fetch_part, history, partition_image

from strandline.core.errors import ErrorCode
from strandline.core.log.effects import SendEpochEnds, SendFetch
from strandline.core.log.truncation import HISTORIC, EpochCache, FirstMove, historic_fault, rule_for
from strandline.core.types import Durability, EpochEntry, FetchHw, IsrJoin, LeaderEpoch, Offset, Rules, Truncation
from strandline_sim.runs.historic_rules import HISTORIC_TRUNCATION

A, B, C = 1, 2, 3
UNSAFE = [Truncation.KIP_279, Truncation.KIP_101, Truncation.HIGH_WATERMARK]
ASKED = [Truncation.KIP_279, Truncation.KIP_101]


def records(cluster: Cluster, node: int) -> list[tuple[int, object]]:
    """(epoch, payload) of every record of a log."""
    return [r[1:] for r in cluster.disks[node][TP].records()]


def test_every_value_has_its_strategy() -> None:
    """The setting is closed: each value names one rule, the historic ones are unfenced, unchecked and forgiving."""
    rules = {truncation: rule_for(truncation) for truncation in Truncation}
    assert {t for t, rule in rules.items() if not rule.fenced} == HISTORIC == set(HISTORIC_TRUNCATION) == set(UNSAFE)
    assert all(rule.checked == rule.fenced != rule.forgiving for rule in rules.values())


def test_no_server_has_a_historic_rule() -> None:
    """A process with data node and controller roles cannot be given a historic rule: only the simulator has them."""
    script = """
import sys
import strandline.controller.process, strandline.node.node
from strandline.core.log.truncation import HISTORIC, rule_for
assert not any(name.startswith("strandline_sim") for name in sys.modules)
for historic in HISTORIC:
    try:
        rule_for(historic)
    except AssertionError as error:
        print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.count("is a rule of history, which only the simulator has") == len(UNSAFE)


@pytest.mark.parametrize(
    ("truncation", "known", "empty"),
    [
        (Truncation.LEADER_EPOCH, FirstMove.ASK, FirstMove.FETCH),
        (Truncation.FETCH, FirstMove.FETCH, FirstMove.FETCH),
        (Truncation.KIP_279, FirstMove.ASK, FirstMove.CUT_TO_HW),
        (Truncation.KIP_101, FirstMove.ASK, FirstMove.CUT_TO_HW),
        (Truncation.HIGH_WATERMARK, FirstMove.CUT_TO_HW, FirstMove.CUT_TO_HW),
    ],
)
def test_the_first_move(truncation: Truncation, known: FirstMove, empty: FirstMove) -> None:
    """M28: a follower's first request, with an epoch in its cache and with none."""
    cache = EpochCache([EpochEntry(LeaderEpoch(3), Offset(0))])

    assert rule_for(truncation).first_move(cache) is known
    assert rule_for(truncation).first_move(EpochCache()) is empty


@pytest.mark.parametrize("truncation", ASKED)
def test_an_undefined_answer_means_the_high_watermark(truncation: Truncation) -> None:
    """M38: under a historic rule a leader that does not know the epoch makes the follower truncate to its HW."""
    cluster = Cluster(B, rules=Rules(truncation=truncation))
    cluster.preload(B, history((5, 10, 0)), hw=8)
    cluster.push(B, partition_image(epoch=6))
    cluster.epoch_ended(node=B, leader=A)
    (cut,) = cluster.emitted(B, "TRUNCATION")

    assert cluster.ends(B) == (8, 8)
    assert (cut.event.reason, cut.event.committed_cut) == ("high_watermark", None)
    assert len(cluster.wished(B, SendFetch)) == 1


@pytest.mark.parametrize(
    ("truncation", "end", "questions"),
    [(Truncation.KIP_101, 155, 1), (Truncation.KIP_279, 120, 2), (Truncation.LEADER_EPOCH, 120, 2)],
)
def test_only_kip_101_asks_once(truncation: Truncation, end: int, questions: int) -> None:
    """T29 and its ancestor: an unknown epoch is requested again, except after an answer with only an offset."""
    cluster = Cluster(B, rules=Rules(truncation=truncation))
    cluster.preload(B, history((3, 120, 0), (5, 80, 120)))
    cluster.push(B, partition_image(epoch=6))
    cluster.epoch_ended(4, 155, node=B, leader=A)

    assert cluster.log(B).leo == end
    assert len(cluster.wished(B, SendEpochEnds)) == questions
    assert len(cluster.wished(B, SendFetch)) == 2 - questions


def test_high_watermark_asks_nothing_and_proves_nothing() -> None:
    """Before 0.11: truncate to the own HW at once, then fetch without any epoch; without a leader wait."""
    cluster = Cluster(B, rules=Rules(truncation=Truncation.HIGH_WATERMARK))
    cluster.preload(B, history((5, 10, 0)), hw=7)
    cluster.push(B, partition_image(epoch=6, leader=None))
    waiting = cluster.cuts(B)
    cluster.push(B, partition_image(epoch=7, version=2))
    (fetch,) = cluster.wished(B, SendFetch)

    assert waiting == []
    assert cluster.cuts(B) == [7]
    assert cluster.wished(B, SendEpochEnds) == []
    assert fetch.request.partitions[0].last_fetched_epoch is None


@pytest.mark.parametrize("truncation", list(Truncation))
def test_who_compares_leader_epochs(truncation: Truncation) -> None:
    """KIP-320: a replica's fetch of another epoch is rejected by the safe rules, and answered by the historic ones."""
    cluster = Cluster(A, rules=Rules(truncation=truncation))
    cluster.push(A, partition_image(epoch=2))
    cluster.produce(node=A)
    older = cluster.result(cluster.fetch(0, by=B, part=fetch_part(0, epoch=1, log_start=0)))
    consumer = cluster.result(cluster.fetch(0, by=None, epoch=1))

    assert consumer.refusal.code is ErrorCode.FENCED_LEADER_EPOCH
    assert (older.refusal is None) == (truncation in UNSAFE)
    assert cluster.remote(B, A) == (0 if truncation in UNSAFE else None)


@pytest.mark.parametrize("truncation", list(Truncation))
@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("fetch_hw", list(FetchHw))
@pytest.mark.parametrize("isr_join", list(IsrJoin))
def test_the_four_rules_combine(
    truncation: Truncation, durability: Durability, fetch_hw: FetchHw, isr_join: IsrJoin
) -> None:
    """The rules are independent of each other: any combination replicates and commits."""
    rules = Rules(truncation=truncation, durability=durability, fetch_hw=fetch_hw, isr_join=isr_join)
    cluster = Cluster(A, B, rules=rules)
    cluster.push_all(partition_image())
    requests = [cluster.produce(payload=f"m{n}") for n in range(3)]
    cluster.advance(3000, settle=True)

    assert all((found := cluster.outcome(r)) is not None and found.refusal is None for r in requests)
    assert records(cluster, A) == records(cluster, B) == [(0, "m0"), (0, "m1"), (0, "m2")]
    assert cluster.ends(B) == (3, 3)


def test_only_history_is_refused_to_servers() -> None:
    """Servers refuse the historic ones of the truncation rules, and all except the current one of the other rules."""
    assert {truncation for truncation in Truncation if historic_fault(Rules(truncation=truncation))} == HISTORIC
    assert "truncation=kip-101" in (historic_fault(Rules(truncation=Truncation.KIP_101)) or "")
    assert historic_fault(Rules(isr_join=IsrJoin.HW)) and historic_fault(Rules(fetch_hw=FetchHw.UPDATED))
    assert historic_fault(Rules(durability=Durability.PAGE_CACHE)) is None
