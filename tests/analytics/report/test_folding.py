"""What the page folds: partitions to which the same happened, and statistics that have nothing to say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from reported_material import event, failover, material, stall

from strandline_analytics.report.material import Declared, Material, Result, incidents_of
from strandline_analytics.report.page import page, render
from strandline_analytics.report.scenes import scenes
from strandline_analytics.report.tables import Content, stat_table
from strandline_analytics.timeline.event import Event


def _of_partitions(number: int, **changed: Any) -> list[Event]:
    """`failover` in so many partitions; the events of the last one have these fields changed, by type."""
    found = failover()
    for partition in range(1, number):
        for each in failover():
            if each.partition is not None:
                fields = changed.get(each.event_type, {}) if partition == number - 1 and each.t_us > 0 else {}
                found.append(replace(each, partition=partition, fields={**each.fields, **fields}))
    return found


def _drawn(events: list[Event]) -> list[tuple[int, list[int]]]:
    """The partition of each drawing, and those that look like it."""
    reported = material(events=events)
    found = incidents_of(reported)
    return [(scene.key[2], sorted(key[2] for key in scene.alike)) for scene in scenes(found[0], found, reported)]  # type: ignore[misc]


def test_of_partitions_that_look_alike_one_is_drawn() -> None:
    """The same failover in four partitions is one picture, which names the other three."""
    shown = page(material(events=_of_partitions(4)))["incidents"][0]

    assert [picture["title"] for picture in shown["pictures"]] == ["t-0"]
    assert shown["pictures"][0]["alike"] == "3 more partitions look the same: t-1, t-2, t-3"
    assert shown["left_out"] == ""


def test_another_new_leader_other_offsets_and_times_are_no_difference() -> None:
    """Partition 2 is led by node 3 afterwards, starts elsewhere and cuts more: it is the same picture."""
    events = _of_partitions(
        3, LEADER_CHANGE={"new_leader": 3}, EPOCH_START={"start_offset": 70}, TRUNCATION={"from_leo": 90, "to_leo": 70}
    )

    assert [sorted((drawn, *alike)) for drawn, alike in _drawn(events)] == [[0, 1, 2]]


def test_a_cut_below_the_high_watermark_is_a_difference() -> None:
    """Partition 2 cut committed records; partition 1 did not, and looks like partition 0."""
    assert sorted(_drawn(_of_partitions(3, TRUNCATION={"committed_cut": 2}))) == [(0, [1]), (2, [])]


def test_another_cause_or_another_node_is_a_difference() -> None:
    """Who left an ISR, and why, is in the likeness."""
    assert len(_drawn(_of_partitions(2, ISR_CHANGE={"cause": "lag"}))) == 2
    assert len(_drawn(_of_partitions(2, ISR_CHANGE={"old_isr": [1, 2, 3, 4]}))) == 2


def test_a_partition_whose_high_watermark_stalled_is_not_like_one_whose_did_not() -> None:
    """The stall of partition 0 keeps it apart from partition 1."""
    reported = material(events=_of_partitions(2), stalls=(stall(2_100, 3_500),))
    found = incidents_of(reported)

    assert [scene.alike for scene in scenes(found[0], found, reported)] == [(), ()]


def test_a_later_change_of_one_partition_is_a_difference() -> None:
    """Node 3 leaves the ISR of partition 1 before node 1 is back."""
    again = event("ISR_CHANGE", 4_500, partition=1, partition_epoch=2, leader_epoch=1, old_isr=[2, 3], new_isr=[2],
                  cause="lag_stuck", initiator="leader")  # fmt: skip

    assert len(_drawn([*_of_partitions(2), again])) == 2


def _result(rows: list[dict[str, Any]], **changed: Any) -> Result:
    declared = (Declared(name="worst", unit="records", meaning="m"), Declared(name="mean", unit="records", meaning="m"))
    blank = Result(id="s99", title="Tides", headline="worst", definition="", declared=declared)
    return replace(blank, rows=rows, **changed)


def _row(partition: int, worst: int | None, *, coverage: float = 1.0) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "worst": worst, "mean": None, "coverage": coverage}


def _content(rows: list[dict[str, Any]], **changed: Any) -> Content:
    return stat_table(_result(rows, **changed), material()).content


def test_the_worst_rows_come_first() -> None:
    """By the headline, the largest first; of equals the lower partition."""
    rows = [_row(0, 1), _row(2, 9), _row(3, 1)]
    shown = stat_table(_result(rows), material()).rows

    assert [cells[0] for cells in shown] == ["t-2", "t-0", "t-3"]


def test_rows_without_a_figure_are_counted_and_not_shown() -> None:
    """One row of zeros and two of which nothing is known, beside one that has a figure."""
    rows = [_row(0, 1), _row(1, 0), _row(2, None, coverage=0.0), _row(3, None, coverage=0.0)]
    shown = stat_table(_result(rows), material())

    assert [cells[0] for cells in shown.rows] == ["t-0"]
    assert shown.left_out.startswith("1 more row is all zero; nothing is known for 2 more rows. All rows: ")


def test_a_row_whose_headline_is_not_known_is_last() -> None:
    """It has another figure, so it is shown."""
    rows = [_row(0, None) | {"mean": 7}, _row(1, 1)]

    assert [cells[0] for cells in stat_table(_result(rows), material()).rows] == ["t-1", "t-0"]


def test_a_statistic_of_zeros_is_told_from_one_of_which_nothing_is_known() -> None:
    """Zeros need a time that was known; a figure above zero, and a failure, are shown."""
    assert _content([_row(0, 0), _row(1, None)]) is Content.ZEROS
    assert _content([]) is Content.ZEROS
    assert _content([_row(0, None, coverage=0.0)]) is Content.NOTHING_KNOWN
    assert _content([_row(0, 0), _row(1, 2)]) is Content.FIGURES
    assert _content([], trouble="not computed") is Content.FIGURES


def test_statistics_of_zeros_stand_behind_one_line() -> None:
    """One closed line names them; their tables, and the anchors that definitions lead to, are inside."""
    two = {"s98": replace(_result([_row(0, 0)]), id="s98", title="Ebb"), "s99": _result([_row(0, 0)])}
    reported = material()
    html = render(replace(reported, results={**reported.results, **two}))
    folded = re.search(r'<details class="folded" id="stats-zeros">.*?</details>', html, re.DOTALL)

    assert folded
    assert " open" not in folded[0].partition(">")[0]
    assert "All figures are zero of 2 statistics: S98 Ebb, S99 Tides" in folded[0]
    assert all(f'id="stat-{name}"' in folded[0] for name in two)
    assert html.count('id="stat-s99"') == 1
    assert 'id="stat-s07"' not in folded[0]


def test_a_page_without_such_statistics_has_no_such_line() -> None:
    """Where every statistic has figures, nothing is folded."""
    reported: Material = material()

    assert 'class="folded"' not in render(replace(reported, results={"s07": reported.results["s07"]}))


def test_a_picture_ends_before_the_next_incident() -> None:
    """The failover is over at 5 s, and an operator moves the leader at 5.3 s: the picture of the first stops there."""
    moved = event("LEADER_CHANGE", 5_300, partition_epoch=3, leader_epoch=2, old_leader=2, new_leader=1,
                  new_leader_epoch=2, reason="preferred", election_type="preferred")  # fmt: skip
    reported = material(events=[*failover(), moved])
    found = incidents_of(reported)

    assert [incident.is_planned for incident in found] == [False, True]
    assert scenes(found[0], found, reported)[0].t1 == moved.t_us - 1_000
