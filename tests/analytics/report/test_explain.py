"""The chain behind one decision, from events as a timeline has them."""

from __future__ import annotations

import pytest
from told_material import BEGIN_US, event, failover, samples

from strandline_analytics.explain.chain import candidates, explain


def test_a_failover_is_told_from_the_last_heartbeat_to_the_cut() -> None:
    """Heartbeat, fence, both commits of the decision, epoch start, HW move, cut: each with its time."""
    chain = explain([*failover(), *samples()], 1)

    assert [(link.name, (link.t_us - BEGIN_US) / 1000) for link in chain.links] == [
        ("last heartbeat", 500),
        ("commit", 2_000),
        ("commit", 2_000),
        ("fence", 2_000),
        ("activation", 2_020),
        ("HW move", 2_600),
        ("cut", 4_200),
    ]
    assert chain.missing == ("how far node 1 had come: no leader told it",)


def test_a_shrink_by_lag_names_who_had_stopped_and_when() -> None:
    """The leader's echo tells last fetch and last caught-up, by its clock, moved with its own row."""
    left = {"replica_id": 3, "leo": 7, "last_fetch_us": BEGIN_US + 1_000, "last_caught_up_us": BEGIN_US + 900}
    told = [
        event("ALTER_PARTITION", 29, plane="data", node=1, partition_epoch=4, phase="proposed",
              expected_partition_epoch=4, proposed_isr=[1, 2]),
        event("ISR_CHANGE", 30, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2], cause="lag", initiator="leader"),
        event("ISR_CHANGE", 31, plane="data", node=1, partition_epoch=5, old_isr=[1, 2, 3], new_isr=[1, 2],
              cause="lag", removed=[left]),
        event("HW_ADVANCE", 32, plane="data", node=1, partition_epoch=5, old_hw=7, new_hw=9, blocking_replicas=[3]),
    ]  # fmt: skip
    chain = explain(told, 5)

    names = ["last caught up", "last fetch", "proposal", "commit", "HW move"]
    assert [link.name for link in chain.links] == names
    assert chain.links[1].told == "node 3 at LEO 7"
    assert "had waited for node 3" in chain.links[-1].told
    assert chain.missing == ()


def test_what_is_not_there_is_named_and_a_wrong_epoch_refused() -> None:
    """A leader's shrink without its proposal says so; an epoch without a decision has candidates instead."""
    bare = event("ISR_CHANGE", 30, partition_epoch=5, old_isr=[1, 2], new_isr=[1], cause="lag", initiator="leader")

    assert "the leader's proposal" in explain([bare], 5).missing
    with pytest.raises(LookupError, match="partition epoch 9"):
        explain([bare], 9)
    assert candidates([bare]) == [bare]
