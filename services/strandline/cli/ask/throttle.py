"""`--throttle RATE` of commands that move replicas: whether copies can finish at a rate, and how long they take (C80).

Invariant: a rate below what clients write into the partitions that a node copies at a time is refused with both
numbers, unless it is forced: these copies would never catch up.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from strandline.cli.failures import CommandFailed
from strandline.units import bytes_text, duration_text, read_size

if TYPE_CHECKING:
    from strandline.client import Admin, DescribedReplica

EXIT_REFUSED_PLAN = 2
_LOOK_S = 2.0
"""Time between two looks at the ends of logs."""

Name = tuple[str, int]
"""A topic and a partition of it."""


def read_rate(text: str | int) -> int:
    """`20MB` or `20MB/s` as bytes per second.

    Raises:
        typer.BadParameter: it is no rate.
    """
    try:
        rate = text if isinstance(text, int) else read_size(text.removesuffix("/s"))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if rate < 1:
        raise typer.BadParameter("a rate is at least 1B; leave --throttle out to copy as fast as possible")
    return rate


Throttle = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="RATE",
        parser=read_rate,
        help="Bytes per second that a node sends and receives for these moves, such as 20MB; default: no limit.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Allow a throttle below the rate at which clients write.")]


class Limit(NamedTuple):
    """A rate in bytes per second, None for no limit, and whether it may be below what clients write."""

    rate: int | None
    force: bool


class MovedCopy(NamedTuple):
    """What one move copies: from which node, None if there is no leader, to which ones."""

    name: Name
    leader: int | None
    adding: tuple[int, ...]


async def inflow(admin: Admin, topics: Iterable[str], seconds: float = _LOOK_S) -> dict[Name, float]:
    """Bytes per second that clients write into each partition, by two looks at the ends of logs."""
    named = sorted(set(topics))
    before, began = _ends(await admin.describe_replicas(named)), time.monotonic()
    await asyncio.sleep(seconds)
    after, passed = _ends(await admin.describe_replicas(named)), time.monotonic() - began
    return {
        name: max(0, leo - before[name][0]) * record_bytes / passed
        for name, (leo, record_bytes) in after.items()
        if name in before
    }


def _ends(held: Iterable[DescribedReplica]) -> dict[Name, tuple[int, float]]:
    """For the longest log of each partition, its end and the bytes per record."""
    ends: dict[Name, tuple[int, float]] = {}
    for one in held:
        if (view := one.view) is not None and (leo := view.leo) >= ends.get((one.topic, one.partition), (0, 0.0))[0]:
            ends[one.topic, one.partition] = leo, one.size_bytes / max(1, leo - view.log_start_offset)
    return ends


def never_ending(
    copies: Iterable[MovedCopy], written: Mapping[Name, float], rate: int, at_a_time: int | None = None
) -> dict[int, str]:
    """For each node why its copies would never catch up at this rate. Of planned copies only ``at_a_time`` run
    together, at worst the largest; None means that all run already."""
    loads: dict[tuple[int, str], list[float]] = defaultdict(list)
    for name, leader, adding in copies:
        for node_id in adding:
            loads[node_id, "receives"].append(written.get(name, 0))
        if leader is not None:
            loads[leader, "sends"].append(written.get(name, 0) * len(adding))
    found = {}
    for (node_id, does), load in loads.items():
        total = sum(sorted(load)[-(at_a_time or len(load)) :])
        if total >= rate:
            found[node_id] = (
                f"clients write {bytes_text(total)}/s into what node {node_id} {does} at a time, and the throttle is "
                f"{bytes_text(rate)}/s"
            )
    return found


def refuse_never_ending(reasons: Iterable[str]) -> None:
    """Refuse a rate for these reasons, if there are any.

    Raises:
        CommandFailed: with exit code 2.
    """
    if found := list(dict.fromkeys(reasons)):
        why = "these copies would never catch up; give a higher throttle, or --force"
        raise CommandFailed("\n  ".join(["nothing was changed: refused", *found, why]), EXIT_REFUSED_PLAN)


def time_at(rate: int, least_seconds: float) -> str:
    """How long the copies take at a rate."""
    return f"at {bytes_text(rate)}/s the copies take at least {duration_text(1_000 * least_seconds)}"
