"""A timeline says why its times go back."""

from __future__ import annotations

from reported_material import event

from strandline_analytics.commands.timeline import remark_on_clocks


def test_times_that_go_back_are_explained() -> None:
    """Node 2 begins its epoch by its own clock 5 ms before the decision that made it leader."""
    decided = event("LEADER_CHANGE", 2_000, partition_epoch=1, leader_epoch=1)
    began = event("EPOCH_START", 1_995, plane="data", node=2, partition_epoch=1, leader_epoch=1)

    assert remark_on_clocks([decided, began]).startswith("strandline: 1 row shows an earlier time than the row above")


def test_times_in_order_need_no_remark() -> None:
    """Nothing is said where no time goes back, nor of an empty list."""
    rows = [event("EPOCH_START", at_ms, plane="data", node=2) for at_ms in (1, 2, 2)]

    assert remark_on_clocks(rows) == remark_on_clocks([]) == ""
