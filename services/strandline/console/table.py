"""Selects the partitions that the table shows: filter, order and page.

Pure. Invariant: a query that makes no sense is answered with the default, never with an error; the number of rows on
a page is bounded whatever is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from strandline.console.overview import PartitionRow, Rank

PAGE_ROWS = 50

SHOWN: dict[str, tuple[str, Callable[[PartitionRow], bool]]] = {
    "all": ("all", lambda row: True),
    "trouble": ("in trouble", lambda row: row.rank < Rank.NOT_PREFERRED),
    "out-of-sync": ("with replicas out of sync", lambda row: bool(row.out)),
    "offline": ("offline", lambda row: row.rank is Rank.OFFLINE),
    "under-min": ("under min ISR", lambda row: len(row.isr) < row.min_isr),
    "at-min": ("at min ISR", lambda row: row.rank is Rank.AT_MIN_ISR),
    "recovering": ("elected unclean", lambda row: row.rank is Rank.RECOVERING),
    "not-preferred": ("not led by the preferred replica", lambda row: row.leader is not None and not row.is_preferred),
}
"""The filters: the word in the address, the words on the page, the test. `under-min` counts offline ones too."""

SORTED: dict[str, tuple[str, Callable[[PartitionRow], tuple[object, ...]]]] = {
    "worst": ("worst first", lambda row: (row.rank, -row.lag, row.topic, row.index)),
    "name": ("name", lambda row: (row.topic, row.index)),
    "lag": ("largest lag", lambda row: (-row.lag, row.topic, row.index)),
    "size": ("largest log", lambda row: (-(row.size_bytes or 0), row.topic, row.index)),
    "leader": ("leader", lambda row: (-1 if row.leader is None else row.leader, row.topic, row.index)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The filter, order and page that a browser asks for."""

    words: str = ""
    topic: str = ""
    node: int | None = None
    show: str = "all"
    sort: str = "worst"
    page: int = 1

    def url(self, **changed: object) -> str:
        """The address of the table with some of it changed; defaults are left out."""
        values = {
            "q": self.words, "topic": self.topic, "node": self.node, "show": self.show, "sort": self.sort,
            "page": self.page,
        } | changed  # fmt: skip
        defaults = {"show": "all", "sort": "worst", "page": 1}
        kept = {name: value for name, value in values.items() if value not in ("", None, defaults.get(name))}
        return f"/partitions?{urlencode(kept)}" if kept else "/partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """One page of the selected rows."""

    query: Query
    rows: tuple[PartitionRow, ...]
    found: int
    pages: int


def read_query(given: Mapping[str, str]) -> Query:
    """The query in an address."""
    show, sort = given.get("show", "all"), given.get("sort", "worst")
    return Query(
        words=given.get("q", "").strip()[:249],
        topic=given.get("topic", "")[:249],
        node=_number(given.get("node", "")),
        show=show if show in SHOWN else "all",
        sort=sort if sort in SORTED else "worst",
        page=max(1, _number(given.get("page", "")) or 1),
    )


def table_page(rows: Sequence[PartitionRow], query: Query) -> TablePage:
    """The rows that are asked for; a page beyond the end is the last one."""
    is_shown = SHOWN[query.show][1]
    found = [row for row in rows if is_shown(row) and _is_meant(row, query)]
    found.sort(key=SORTED[query.sort][1])
    pages = max(1, -(-len(found) // PAGE_ROWS))
    page = min(query.page, pages)
    shown = tuple(found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS])
    return TablePage(query=replace(query, page=page), rows=shown, found=len(found), pages=pages)


def _is_meant(row: PartitionRow, query: Query) -> bool:
    if query.topic and row.topic != query.topic:
        return False
    if query.node is not None and all(chip.node_id != query.node for chip in row.chips):
        return False
    return query.words.lower() in row.name.lower()


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None
