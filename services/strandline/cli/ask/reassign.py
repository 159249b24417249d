"""`strandline reassign ...` and `rebalance`: move replicas by a plan, watch the moves, cancel them.

Invariant: exit code 0 of `status` means that nothing is under way, 1 that something is; 2 that a plan was refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from strandline.cli.ask.planning import PER_REQUEST, Save, Yes, carry_out, read_plan
from strandline.cli.ask.throttle import (
    EXIT_REFUSED_PLAN,
    Force,
    Limit,
    MovedCopy,
    Name,
    Throttle,
    inflow,
    never_ending,
    read_rate,
    refuse_never_ending,
)
from strandline.cli.ask.txn import partition_of
from strandline.cli.connect import ask, over_tls
from strandline.cli.durations import read_duration
from strandline.cli.failures import CommandFailed
from strandline.cli.options import Bootstrap, Interval, Output
from strandline.cli.output import Column, Format, console, for_programs, show, table
from strandline.core.planning.plan import EVERY_GOAL, plan
from strandline.core.planning.values import Goal
from strandline.units import bytes_text, count_of, duration_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from strandline.client import Admin
    from strandline.client.administer.admin_answers import OngoingReassignment

_BAR = 20
_SHOWN = 20
_COLUMNS = [
    Column("name_text", "partition"),
    Column("state", "state"),
    Column("adding", "adds"),
    Column("removing", "removes"),
    Column("bar_text", "copied"),
    Column("since_text", "since", number=True),
    Column("throttle_text", "throttle", number=True),
    Column("waiting_text", "waits for"),
]


class _SubmitByDefault(TyperGroup):
    """`reassign --plan FILE` is `reassign submit --plan FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the command before its options."""
        named = not args or not args[0].startswith("-") or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else ["submit", *args])


app = typer.Typer(
    cls=_SubmitByDefault,
    help="Move replicas by a file (reassign --plan FILE); watch moves, or cancel them.",
    no_args_is_help=True,
)


class What(StrEnum):
    """What `rebalance` is limited to."""

    LEADERS = "leaders"


@over_tls
def rebalance(
    bootstrap: Bootstrap,
    what: Annotated[
        What | None, typer.Argument(metavar="leaders", help="Change only the preferred leaders; no replica is copied.")
    ] = None,
    throttle: Throttle = None,
    force: Force = False,
    yes: Yes = False,
    save: Save = None,
    output: Output = Format.TABLE,
) -> None:
    """Plan moves that empty draining nodes and even out racks, replicas, leaders and bytes; --yes submits them."""
    goals = EVERY_GOAL if what is None else {Goal.LEADERS}
    carry_out(
        bootstrap,
        lambda seen: plan(seen.nodes, seen.partitions, goals),
        yes=yes,
        save=save,
        form=output,
        limit=Limit(throttle, force),
    )
    if what is not None and yes:
        ask(bootstrap, lambda admin: admin.elect_leaders())


@app.command()
@over_tls
def submit(
    bootstrap: Bootstrap,
    file: Annotated[
        Path, typer.Option("--plan", metavar="FILE", help="JSON of kafka-reassign-partitions or of --save.")
    ],
    throttle: Throttle = None,
    force: Force = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the moves of a plan's file, and submit them with --yes."""
    carry_out(bootstrap, lambda seen: read_plan(file, seen), yes=yes, form=output, limit=Limit(throttle, force))


@app.command()
@over_tls
def status(
    bootstrap: Bootstrap,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the output until nothing is under way.")
    ] = False,
    interval: Interval = read_duration("2s"),
    output: Output = Format.TABLE,
) -> None:
    """Show the moves under way: how much is copied, at which throttle, and what they wait for.

    With --watch json is one line for each change.
    Exit code 0: nothing is under way; 1: something runs, is queued or waits.
    """
    if watch and output not in (Format.TABLE, Format.JSON):
        raise typer.BadParameter("--watch shows a table, or with -o json a line for each change")
    if watch:
        follow = watch_until_done if output is Format.TABLE else _print_changes
        ask(bootstrap, lambda admin: follow(admin, interval.s))
        return
    rows = ask(bootstrap, _look)
    if output is Format.TABLE and rows:
        console().print(screen(rows, rate=None))
    else:
        show(for_programs(rows), [], output, empty="nothing is under way")
    if rows:
        raise typer.Exit(1)


async def _look(admin: Admin) -> list[dict[str, Any]]:
    rows = await progress(admin)
    throttled = _throttled(rows)
    return await progress(admin, written=await inflow(admin, throttled)) if throttled else rows


def _throttled(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The topics with a throttled move."""
    return [row["topic"] for row in rows if row["throttle_bytes_per_s"] is not None and row["state"] == "running"]


async def _pause(admin: Admin, rows: Iterable[dict[str, Any]], seconds: float) -> Mapping[Name, float]:
    """Wait, and measure meanwhile what clients write into throttled partitions."""
    if throttled := _throttled(rows):
        return await inflow(admin, throttled, seconds)
    await asyncio.sleep(seconds)
    return {}


async def _print_changes(admin: Admin, interval_s: float) -> None:
    """Print moves as a line of JSON whenever more than their age has changed, until none is under way."""
    shown: list[dict[str, Any]] | None = None
    written: Mapping[Name, float] = {}
    while shown != []:
        rows = await progress(admin, written=written)
        plain = for_programs(rows)
        now = [row | {"since_ms": None} for row in plain]
        if now != shown:
            print(json.dumps(plain), flush=True)
        if rows:
            written = await _pause(admin, rows, interval_s)
        shown = now


async def watch_until_done(
    admin: Admin, interval_s: float, node_id: int | None = None, *, stderr: bool = False
) -> None:
    """Show moves, of a node or all, until none is under way; on ``stderr`` where stdout is for a program."""
    from rich.live import Live

    before: tuple[float, int] | None = None
    most = 0
    written: Mapping[Name, float] = {}
    with Live(console=console(stderr=stderr), screen=False, auto_refresh=False) as live:
        while rows := await progress(admin, node_id, written):
            total = sum(row["total_bytes"] for row in rows)
            most = max(most, total)
            # A move that has ended is no row any more, and counts as copied.
            now, left = time.monotonic(), total - sum(row["copied_bytes"] for row in rows)
            rate = (before[1] - left) / (now - before[0]) if before else None
            before = now, left
            live.update(screen(rows, rate, finished_bytes=most - total), refresh=True)
            written = await _pause(admin, rows, interval_s)
    typer.echo("\nnothing is under way" if before else "nothing is under way", err=stderr)


async def progress(
    admin: Admin, node_id: int | None = None, written: Mapping[Name, float] | None = None
) -> list[dict[str, Any]]:
    """Every move under way as a row, of one node or of all; what is copied is what nodes report of their logs.

    ``written``: bytes per second from clients, as far as they were measured.
    """
    ongoing = [one for one in await admin.list_partition_reassignments() if node_id in (None, *one.replicas)]
    held = await admin.describe_replicas({one.topic for one in ongoing}) if ongoing else []
    sizes = {(one.topic, one.partition, one.node_id): one.size_bytes for one in held}
    never = _never(ongoing, written or {})
    rows = []
    for one in ongoing:
        adding = one.adding or tuple(each for each in one.target if each not in one.replicas)
        own = {each: sizes.get((one.topic, one.partition, each), 0) for each in {*one.replicas, *adding}}
        whole = max((size for each, size in own.items() if each not in adding), default=0)
        copied, total = sum(min(own[each], whole) for each in adding), whole * len(adding)
        waits = [f"node {each}: {why}" for each, why in one.waiting_for.items()]
        rate, too_slow = one.throttle_bytes_per_s, never.get((one.topic, one.partition))
        waits += [] if too_slow is None else [f"never at this rate: {too_slow}"]
        rows.append(
            {
                "topic": one.topic,
                "partition": one.partition,
                "state": one.state,
                "target": list(one.target),
                "adding": list(adding),
                "removing": [each for each in one.replicas if each not in one.target],
                "copied_bytes": copied,
                "total_bytes": total,
                "since_ms": one.since_ms,
                "throttle_bytes_per_s": rate,
                "never_at_this_rate": too_slow is not None,
                "waiting_for": {str(each): why for each, why in one.waiting_for.items()},
                "name_text": f"{one.topic}-{one.partition}",
                "bar_text": bar(copied, total),
                "since_text": None if one.since_ms is None else duration_text(one.since_ms),
                "throttle_text": None if rate is None else f"{bytes_text(rate)}/s",
                "waiting_text": "; ".join(waits) or None,
            }
        )
    return rows


def _never(ongoing: Iterable[OngoingReassignment], written: Mapping[Name, float]) -> dict[Name, str]:
    """The reasons of running moves that cannot end at their rate."""
    by_rate: dict[int, list[MovedCopy]] = {}
    for one in ongoing:
        if one.throttle_bytes_per_s is not None and one.state == "running":
            copy = MovedCopy((one.topic, one.partition), None, one.adding)
            by_rate.setdefault(one.throttle_bytes_per_s, []).append(copy)
    found: dict[Name, str] = {}
    for rate, copies in by_rate.items():
        never = never_ending(copies, written, rate)
        for copy in copies:
            if why := [never[each] for each in copy.adding if each in never]:
                found[copy.name] = "; ".join(why)
    return found


def bar(copied: int, total: int) -> str:
    """`█████░░░░░ 50 %`; a move without bytes to copy is only a change of order or a removal."""
    part = copied / total if total else 1.0
    full = int(part * _BAR)
    return f"{'█' * full}{'░' * (_BAR - full)} {int(100 * part)} %"


def screen(rows: Sequence[dict[str, Any]], rate: float | None, finished_bytes: int = 0) -> RenderableType:
    """All moves in a line, with bytes per second; then the first of them: those that run before those that wait."""
    from rich.console import Group
    from rich.text import Text

    copied, total = (finished_bytes + sum(row[key] for row in rows) for key in ("copied_bytes", "total_bytes"))
    running = sum(row["state"] == "running" for row in rows)
    line = f"{bar(copied, total)}   {running} running, {len(rows) - running} queued   "
    line += f"{bytes_text(copied)} of {bytes_text(total)}"
    if rate is not None:
        line += f"   {bytes_text(max(0, rate))}/s"
        line += f"   {duration_text(1_000 * (total - copied) / rate)} left" if rate > 0 else ""
    ordered = sorted(rows, key=lambda row: row["state"] != "running")[:_SHOWN]
    more = [Text(f"and {count_of(len(rows) - _SHOWN, 'more move')}")] if len(rows) > _SHOWN else []
    return Group(Text(line), Text(), table(ordered, _COLUMNS), *more)


@app.command()
@over_tls
def cancel(
    bootstrap: Bootstrap,
    partitions: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC-N]...", help="Partitions whose moves to cancel; default: all.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Allow fewer in-sync replicas than min.insync.replicas.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Cancel moves under way: the partitions return to their previous replicas."""
    named = [partition_of(name) for name in partitions or []]

    async def cancel_all(admin: Admin) -> None:
        chosen = named or [(one.topic, one.partition) for one in await admin.list_partition_reassignments()]
        await take_back(admin, chosen, force=force, yes=yes)

    ask(bootstrap, cancel_all)


@app.command()
@over_tls
def throttle(
    bootstrap: Bootstrap,
    rate: Annotated[str, typer.Argument(metavar="RATE|none", help="Bytes per second, such as 20MB; none: no limit.")],
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Change the throttle of all moves under way, including waiting ones."""
    limit = Limit(None if rate == "none" else read_rate(rate), force)
    ask(bootstrap, lambda admin: _throttle(admin, limit, yes))


async def _throttle(admin: Admin, limit: Limit, yes: bool) -> None:
    """Submit the targets that are under way again, at another rate.

    Raises:
        CommandFailed: the rate is too low, or some moves have another target by now; with exit code 2.
    """
    ongoing = await admin.list_partition_reassignments()
    if limit.rate is not None and not limit.force and ongoing:
        slower = [one._replace(throttle_bytes_per_s=limit.rate, state="running") for one in ongoing]
        refuse_never_ending(_never(slower, await inflow(admin, {one.topic for one in ongoing})).values())
    targets = {(one.topic, one.partition): one.target for one in ongoing}
    await _alter(admin, targets, "changed", yes=yes, throttle_bytes_per_s=limit.rate, planned_from=targets)


async def take_back(admin: Admin, chosen: Iterable[tuple[str, int]], *, force: bool = False, yes: bool) -> None:
    """Cancel these moves, and report the results.

    Raises:
        CommandFailed: some are not cancelled; with exit code 2.
    """
    await _alter(admin, dict.fromkeys(chosen), "cancelled", yes=yes, force=force)


async def _alter(
    admin: Admin, targets: Mapping[Name, Sequence[int] | None], done: str, *, yes: bool, **given: Any
) -> None:
    names, rows = list(targets), []
    for start in range(0, len(names), PER_REQUEST):
        part = {name: targets[name] for name in names[start : start + PER_REQUEST]}
        rows += await admin.alter_partition_reassignments(part, validate_only=not yes, **given)
    refused = [f"{row.topic}-{row.partition}: {row.refusal}" for row in rows if row.refusal is not None]
    said = done if yes else f"would be {done}; nothing was changed, --yes applies it"
    typer.echo(f"{count_of(len(rows) - len(refused), 'move')} {said}")
    if refused:
        raise CommandFailed(f"not {done}:\n" + "\n".join(f"  {each}" for each in refused), EXIT_REFUSED_PLAN)
