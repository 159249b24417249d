"""What an explanation is made of: links in the order of time, what is missing, and what it cost.

Invariant: a link exists only where an event shows it; what is missing is named in ``missing`` and never made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from strandline_analytics.timeline.event import Event
from strandline_analytics.timeline.sentences import sentence, writer


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One step: what, when (us, the controller's clock as far as it was measured), who reported it, and why."""

    name: str
    t_us: int
    who: str
    reported: str
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The explanation of one decision, or of one stall of the high watermark (then ``partition_epoch`` is None)."""

    topic: str | None
    partition: int | None
    partition_epoch: int | None
    reported: str
    links: tuple[Link, ...]
    missing: tuple[str, ...]
    cost: tuple[str, ...] = ()
    """Who waited, for how long, and what was cut: sentences."""


def link_of(name: str, event: Event) -> Link:
    """The link that an event is, under this name."""
    return Link(name=name, t_us=event.t_us, who=writer(event.node_id), reported=sentence(event), cause=event.cause)


def in_order(links: Iterable[Link]) -> tuple[Link, ...]:
    """By time; links of one moment stay as they were given."""
    return tuple(sorted(links, key=lambda link: link.t_us))
