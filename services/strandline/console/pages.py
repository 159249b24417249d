"""The parts of each page and their HTML: a frame, and parts that are sent again when they change.

Invariant: everything that came from a cluster or from a browser is escaped by Jinja, in pages and in live parts alike;
a page without JavaScript shows the same parts as one with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from strandline import __version__, units
from strandline.console.overview import IN_WORDS, ReplicaState
from strandline.console.table import SHOWN, SORTED
from strandline.runtime.clock import wall_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a page, by its template; ``live``: whether it is sent again when it changes."""

    name: str
    live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page is made of. ``section`` is the entry of the navigation it belongs to."""

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
        "State": ReplicaState,
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
