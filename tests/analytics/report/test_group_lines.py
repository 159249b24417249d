"""The consumer groups of a report: one line each, of the figures of S21 to S25."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reported_material import material

from strandline_analytics.report.groups import GroupLine, group_lines
from strandline_analytics.report.material import Declared, Material, Result
from strandline_analytics.report.page import page, render

S = 1_000_000


def _material(**rows: list[dict[str, Any]]) -> Material:
    """Results of these statistics, each row of topic t in cluster c; a statistic that is left out knows no group."""
    known = material()
    where = {"cluster_id": "c", "topic": "t", "partition": 0, "coverage": 1.0, "window_start": known.start_us}
    no_group = [{"group_id": None}]
    results = dict(known.results)
    for name in ("s21", "s22", "s23", "s24", "s25"):
        results[name] = Result(
            id=name,
            title=f"Title of {name}",
            headline="max_us",
            definition="First.",
            declared=[Declared(name="group_id", unit="", meaning="the group", is_extra=True)],
            rows=[where | row for row in rows.get(name, no_group)],
        )
    return replace(known, results=results)


FULL = _material(
    s21=[
        {"group_id": "orders", "max_records": 80},
        {"group_id": "orders", "max_records": 1_200, "partition": 1},
        {"group_id": "audit", "max_records": 160},
    ],
    s22=[
        {"group_id": "orders", "max_us": 20 * S, "at_least_us": None},
        {"group_id": "audit", "max_us": None, "at_least_us": 57 * S},
    ],
    s23=[
        {"group_id": "orders", "rebalances": 2, "unfinished": 1, "max_us": 12 * S, "max_unfinished_us": 5 * S,
         "slowest_member": "m-b"},
    ],
    s24=[
        {"group_id": "orders", "member_id": None, "episodes": 0, "longest_us": None},
        {"group_id": "orders", "member_id": "m-a", "episodes": 1, "longest_us": 110 * S, "partition": 1},
    ],
    s25=[
        {"group_id": "orders", "refused": 3, "refused_by_error": {"STALE_MEMBER_EPOCH": 3}, "unowned": 0,
         "unowned_longest_us": None},
        {"group_id": "orders", "refused": 4, "refused_by_error": {"STALE_MEMBER_EPOCH": 1, "FENCED": 3}, "unowned": 2,
         "unowned_longest_us": 20 * S, "partition": 1},
    ],
)  # fmt: skip


def test_a_group_has_the_worst_of_its_partitions() -> None:
    """Largest lags, sums of refusals over all partitions, and where somebody was stuck or nobody was."""
    line = group_lines(FULL)[1]

    assert line == GroupLine(
        group_id="orders",
        records="1,200",
        time="20 s",
        rebalances="2 and 1 unfinished",
        longest="12 s",
        slowest="m-b",
        stuck="m-a: t-1, 110 s",
        unowned="t-1, 20 s",
        refused="FENCED: 3, STALE_MEMBER_EPOCH: 4",
    )


def test_what_is_not_known_is_a_dash_and_a_bound_is_called_one() -> None:
    """The group that was behind for longest is first, though only a lower bound of it is known."""
    line = group_lines(FULL)[0]

    assert (line.group_id, line.records, line.time) == ("audit", "160", "at least 57 s")
    assert {line.rebalances, line.longest, line.slowest, line.stuck, line.unowned, line.refused} == {"–"}


def test_known_and_nothing_happened_is_none() -> None:
    """A group in which nobody was stuck, everything was owned and every commit was taken."""
    calm = _material(
        s24=[{"group_id": "g", "member_id": None, "episodes": 0, "longest_us": None}],
        s25=[{"group_id": "g", "refused": 0, "refused_by_error": None, "unowned": 0, "unowned_longest_us": None}],
    )
    (line,) = group_lines(calm)

    assert (line.stuck, line.unowned, line.refused) == ("none", "none", "none")


def test_groups_of_two_clusters_are_told_apart() -> None:
    """One name in two clusters is two groups, and the cluster stands before it."""
    both = _material(s21=[{"group_id": "g", "max_records": 1}, {"group_id": "g", "max_records": 2, "cluster_id": "d"}])

    assert [line.group_id for line in group_lines(both)] == ["c: g", "d: g"]


def test_a_page_without_groups_has_no_such_part() -> None:
    """The part is on the page where there are groups, and nowhere else."""
    assert 'id="groups"' in render(FULL)
    assert 'id="groups"' not in render(_material())
    assert page(_material())["groups"] == []
