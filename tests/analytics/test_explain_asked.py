"""Which events Spark selects for an explanation, on worked histories."""

from __future__ import annotations

from typing import Any

from strandline_analytics.explain import ask
from strandline_analytics.explain.link import Chain

S = 1_000_000


def test_of_two_stalls_the_window_chooses_one_and_its_chain_has_moves_and_looks(histories: Any) -> None:
    """Without a window all are listed, the last as long as its sample is valid; from 50 to 65 s it is the second."""
    every = ask.stall(histories.tables, ask.Asked(topic="t", partition=0, cluster_id="slow_disk"))
    assert isinstance(every, list)
    assert [(each.t0, each.t1) for each in every] == [(500_000, 3 * S), (50 * S, 65 * S), (65 * S, 95 * S)]

    later = ask.Asked(topic="t", partition=0, cluster_id="slow_disk", start_us=50 * S, end_us=65 * S)
    chain = ask.stall(histories.tables, later)

    assert isinstance(chain, Chain)
    assert chain.reported == "HW stood at 50 for 15,000 ms, held up by node 2; the next move ended it"
    assert [(link.name, link.t_us // S) for link in chain.links] == [
        ("last HW move", 3),
        ("first wait", 50),
        ("last look", 58),
        ("HW move", 65),
    ]
    assert chain.cost == ("up to 20 records waited for their commit",)


def test_one_decision_is_explained_and_several_are_listed(histories: Any) -> None:
    """A partition epoch names one decision; without one all that match are returned, creations left out."""
    every = ask.decision(histories.tables, ask.Asked(topic="t", partition=0, cluster_id="failover"))
    assert isinstance(every, list)
    assert "created" not in {event.cause for event in every}
    epochs = {event.partition_epoch for event in every}
    assert len(epochs) > 1

    one = min(epoch for epoch in epochs if epoch is not None)
    chain = ask.decision(
        histories.tables, ask.Asked(topic="t", partition=0, cluster_id="failover", partition_epoch=one)
    )
    assert isinstance(chain, Chain)
    assert chain.partition_epoch == one
    assert "commit" in {link.name for link in chain.links}
