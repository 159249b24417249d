"""Lists the consumer groups of the window: one line each, made of S21 to S25, the one that was furthest behind first.

Invariant: every figure is from those statistics, or a maximum or a sum of them over the partitions of the group; an
unknown figure is a dash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.units import duration_text
from strandline_analytics.report.material import Material

_STATISTICS = ("s21", "s22", "s23", "s24", "s25")
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A row of the table."""

    group_id: str
    records: str
    time: str
    rebalances: str
    longest: str
    slowest: str
    stuck: str
    unowned: str
    refused: str


def group_lines(material: Material) -> list[GroupLine]:
    """A line for every group that any of the statistics mentions."""
    rows = {name: _rows(material, name) for name in _STATISTICS}
    groups = {_key(row) for of in rows.values() for row in of}
    several = len({cluster for cluster, _ in groups}) > 1
    found = [({name: [r for r in of if _key(r) == key] for name, of in rows.items()}, key) for key in groups]
    found.sort(key=lambda each: (-_behind_us(each[0]["s22"]), each[1]))
    return [_line(own, f"{cluster}: {group}" if several else group) for own, (cluster, group) in found]


def _line(own: Mapping[str, Sequence[_Row]], name: str) -> GroupLine:
    records = _most(own["s21"], "max_records")
    rebalances = _sum(own["s23"], "rebalances")
    unfinished = _sum(own["s23"], "unfinished")
    counted = (
        "–" if rebalances is None else f"{rebalances:,}" + (f" and {unfinished:,} unfinished" if unfinished else "")
    )
    longest = _longest(own["s23"], "max_us", "max_unfinished_us")
    slow = max((r for r in own["s23"] if r.get("slowest_member")), key=lambda r: r.get("max_us") or 0, default=None)
    return GroupLine(
        group_id=name,
        records="–" if records is None else f"{records:,}",
        time=_longest(own["s22"], "max_us", "at_least_us"),
        rebalances=counted,
        longest=longest,
        slowest="–" if slow is None else str(slow["slowest_member"]),
        stuck=_stuck(own["s24"]),
        unowned=_unowned(own["s25"]),
        refused=_refused(own["s25"]),
    )


def _stuck(rows: Sequence[_Row]) -> str:
    if not rows:
        return "–"
    found = sorted((r for r in rows if r.get("member_id") and r.get("episodes")), key=lambda r: -r["longest_us"])
    return "; ".join(f"{r['member_id']}: {_place(r)}, {_time(r['longest_us'])}" for r in found) or "none"


def _unowned(rows: Sequence[_Row]) -> str:
    known = [row for row in rows if row.get("unowned") is not None]
    if not known:
        return "–"
    longest = max(known, key=lambda row: row.get("unowned_longest_us") or 0)
    if not longest.get("unowned_longest_us"):
        return "none"
    many = sum(1 for row in known if row["unowned"])
    of = f" and {many - 1} more" if many > 1 else ""
    return f"{_place(longest)}, {_time(longest['unowned_longest_us'])}{of}"


def _refused(rows: Sequence[_Row]) -> str:
    if all(row.get("refused") is None for row in rows):
        return "–"
    errors: Counter[str] = Counter()
    for row in rows:
        errors.update(row.get("refused_by_error") or {})
    return ", ".join(f"{name}: {number:,}" for name, number in sorted(errors.items())) or "none"


def _longest(rows: Sequence[_Row], exact: str, bound: str) -> str:
    """The longest time, marked if it is only a lower bound."""
    known, least = _most(rows, exact), _most(rows, bound)
    if known is None and least is None:
        return "–"
    if least is not None and least > (known or 0):
        return f"at least {_time(least)}"
    return _time(known or 0)


def _behind_us(rows: Sequence[_Row]) -> int:
    return max(_most(rows, "max_us") or 0, _most(rows, "at_least_us") or 0)


def _rows(material: Material, name: str) -> list[_Row]:
    rows = material.results[name].rows if name in material.results else []
    return [row for row in rows if row.get("group_id") is not None]


def _key(row: _Row) -> tuple[str, str]:
    return str(row.get("cluster_id")), str(row["group_id"])


def _most(rows: Sequence[_Row], name: str) -> int | None:
    return max((row[name] for row in rows if row.get(name) is not None), default=None)


def _sum(rows: Sequence[_Row], name: str) -> int | None:
    found = [row[name] for row in rows if row.get(name) is not None]
    return sum(found) if found else None


def _place(row: _Row) -> str:
    return f"{row.get('topic')}-{row.get('partition')}"


def _time(us: int) -> str:
    return duration_text(us / 1_000)
