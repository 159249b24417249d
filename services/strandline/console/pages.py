"""The parts of each page and their HTML: a frame, and parts that are sent again when they change.

Invariant: everything that came from a cluster or from a browser is escaped by Jinja, in pages and in live parts
alike; a page without JavaScript shows the same parts as one with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from strandline import __version__, units
from strandline.console.groups import MOST_ROWS, GroupRow
from strandline.console.lanes import draw_lanes
from strandline.console.overview import IN_WORDS, MOST_MOVES, PartitionRow, Rank, ReplicaStanding
from strandline.console.seen import SeenPicture, see
from strandline.console.watching import Watching
from strandline.runtime.clock import wall_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a page, by its template; ``live``: whether it is sent again when it changes."""

    name: str
    live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The parts of a page. ``section`` is the entry of the navigation it belongs to."""

    title: str
    section: str
    parts: tuple[Part, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("strandline.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "age": units.age_text,
        "bytes": units.bytes_text,
        "number": units.number_text,
        "segment": lambda text: quote(str(text), safe=""),
        "clock": _clock,
    }
    environment.globals |= {
        "count_of": units.count_of,
        "shown": {name: words for name, (words, _) in SHOWN.items()},
        "sorted_by": {name: words for name, (words, _) in SORTED.items()},
        "states": [(state.css, state.value, words) for state, words in IN_WORDS.items()],
        "State": ReplicaStanding,
        "version": __version__,
        "now_clock": lambda: _clock(wall_ms()),
    }
    return environment


def write_part(page: Page, part: Part) -> str:
    """One part as HTML."""
    return _environment().get_template(f"{part.name}.html.j2").render(page.values).strip()


def write_page(page: Page) -> str:
    """The whole page as HTML."""
    parts = [(part, write_part(page, part)) for part in page.parts]
    return _environment().get_template("page.html.j2").render(page.values, page=page, parts=parts)


def _clock(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S")


# ---- site
# The pages and their content; the same function serves a whole page and its live parts.
#
# Invariant: making a page asks no node; everything on it is in the picture that all browsers share.

_LISTED = 12
_OF_PARTITION = 30
_IN_FINDING = 8


@dataclass(frozen=True, slots=True)
class Form:
    """The values in the form of a new topic, and what became of it; ``trouble`` has sentence, code, field, rule,
    remedy."""

    values: Mapping[str, str]
    token: str = ""
    trouble: Mapping[str, str] | None = None
    created: str = ""


class Site:
    """The pages of one console."""

    def __init__(self, watching: Watching, *, report: str, allow_changes: bool) -> None:
        self._watching = watching
        self._always: dict[str, Any] = {"report": report, "allow_changes": allow_changes}
        self._seen: SeenPicture | None = None
        self._grouped: tuple[SeenPicture, tuple[GroupRow, ...]] | None = None

    def seen(self, version: int) -> SeenPicture:
        """The picture of this version; all browsers share it."""
        if self._seen is None or self._seen.version != version:
            self._seen = see(version, self._watching.picture)
        return self._seen

    def page(self, path: str, query: Mapping[str, str], seen: SeenPicture, form: Form | None = None) -> Page:
        """The page at a path; if there is none, a page that says so."""
        words = [word for word in path.split("/") if word]
        if not words:
            return self._now(seen)
        if words == ["partitions"]:
            return self._partitions(query, seen)
        if words == ["nodes"]:
            return self._made("Nodes", "nodes", seen, [Part(name="nodes")], {"nodes": seen.nodes()})
        if words == ["topics"]:
            return self._topics(query, seen, form)
        if words == ["audit"]:
            return self._made("Audit", "audit", seen, [Part(name="audit")], {"audit": seen.audit()})
        if words == ["moves"]:
            values = {"moves": seen.moves(), "most": MOST_MOVES}
            return self._made("Moves", "moves", seen, [Part(name="moves")], values)
        if words == ["groups"]:
            values = {"groups": self._groups(seen), "most": MOST_ROWS}
            return self._made("Groups", "groups", seen, [Part(name="groups")], values)
        if words[0] == "groups":
            # A group's name may have a slash.
            return self._group(path.removeprefix("/groups/"), seen)
        if len(words) == 3 and words[0] == "partitions" and words[2].isascii() and words[2].isdecimal():
            return self._partition(words[1], int(words[2][:9]), seen)
        return self.lost(seen, "There is no such page.")

    def lost(self, seen: SeenPicture, said: str, status: int = 404) -> Page:
        """A page that says what was not found or is not allowed."""
        title = {404: "Not found", 403: "Refused"}.get(status, "Refused")
        return self._made(title, "", seen, [Part(name="lost", live=False)], {"said": said}, status)

    def _made(
        self,
        title: str,
        section: str,
        seen: SeenPicture,
        parts: list[Part],
        values: Mapping[str, Any],
        status: int = 200,
    ) -> Page:
        shown = {"seen": seen, "picture": seen.picture, "figures": seen.figures(), **self._always, **values}
        return Page(
            title=title, section=section, parts=(Part(name="state"), *parts), values=shown | {"section": section},
            status=status,
        )  # fmt: skip

    def _now(self, seen: SeenPicture) -> Page:
        transitions = self._watching.transitions.newest(_LISTED)
        parts = [Part(name="wrong"), Part(name="transitions")]
        values = {"transitions": transitions, "of": None, "most": _IN_FINDING}
        return self._made("What is wrong now", "now", seen, parts, values)

    def _partitions(self, query: Mapping[str, str], seen: SeenPicture) -> Page:
        table = table_page(seen.rows, read_query(query))
        parts = [Part(name="filter", live=False), Part(name="partitions")]
        return self._made("Partitions", "partitions", seen, parts, {"table": table, "query": table.query})

    def _partition(self, topic: str, index: int, seen: SeenPicture) -> Page:
        row = seen.row(topic, index)
        if row is None:
            return self.lost(seen, f"The controller has not reported a partition {topic}-{index}.")
        self._watching.courses.follow(row.tp)
        samples = self._watching.courses.of(row.tp)
        lanes = draw_lanes(samples, [chip.node_id for chip in row.chips], seen.picture.now_ms)
        values = {
            "row": row,
            "lanes": lanes,
            "chips": {chip.node_id: chip for chip in row.chips},
            "transitions": self._watching.transitions.newest(_OF_PARTITION, row.tp),
            "of": row,
        }
        parts = [Part(name="partition"), Part(name="lanes"), Part(name="transitions")]
        return self._made(row.name, "partitions", seen, parts, values)

    def _groups(self, seen: SeenPicture) -> tuple[GroupRow, ...]:
        """The groups, shared by all browsers like `seen`; made only when a page shows groups."""
        if self._grouped is None or self._grouped[0] is not seen:
            self._grouped = (seen, seen.groups())
        return self._grouped[1]

    def _group(self, name: str, seen: SeenPicture) -> Page:
        group = next((one for one in self._groups(seen) if one.name == name), None)
        if group is None:
            return self.lost(seen, f"No node has reported a group {name}.")
        parts = [Part(name="group"), Part(name="group_members"), Part(name="group_partitions")]
        return self._made(name, "groups", seen, parts, {"group": group, "most": MOST_ROWS})

    def _topics(self, query: Mapping[str, str], seen: SeenPicture, form: Form | None) -> Page:
        parts = [Part(name="topics")]
        if self._always["allow_changes"]:
            parts = [Part(name="new_topic", live=False), *parts]
        shown = form or Form(values={}, created=query.get("created", "")[:249])
        status = 422 if shown.trouble else 200
        return self._made("Topics", "topics", seen, parts, {"topics": seen.topics(), "form": shown}, status)


# ---- table
# Selects the partitions that the table shows: filter, order and page.
#
# Pure. Invariant: a query that makes no sense is answered with the default, never with an error; the number of rows on
# a page is bounded whatever is asked.

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
