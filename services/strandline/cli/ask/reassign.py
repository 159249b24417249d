"""`strandline reassign ...` and `rebalance`: moves of replicas: begin them from a plan, watch them, cancel them.

Invariant: exit code 0 of `status` means that nothing is under way, 1 that something is; 2 that a plan was refused.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from strandline.cli.ask.planning import EXIT_REFUSED_PLAN, Save, Yes, carry_out, read_plan
from strandline.cli.connect import over_tls
from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import CommandFailed, perform
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, console, show, table
from strandline.core.planning.plan import EVERY_GOAL, plan
from strandline.core.planning.values import Goal
from strandline.units import bytes_text, count_of, duration_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from strandline.client import Admin

_BAR = 20
_FOR_PEOPLE = ("name", "bar", "since_text", "waiting_text")
_SHOWN = 20
_COLUMNS = [
    Column("name", "partition"),
    Column("state", "state"),
    Column("adding", "adds"),
    Column("removing", "removes"),
    Column("bar", "copied"),
    Column("since_text", "since", number=True),
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
        What | None, typer.Argument(metavar="leaders", help="Only which replica is preferred as leader; copies none.")
    ] = None,
    yes: Yes = False,
    save: Save = None,
    output: Output = Format.TABLE,
) -> None:
    """Plan moves that empty draining nodes and even out racks, replicas, leaders and bytes; --yes submits them."""
    goals = EVERY_GOAL if what is None else {Goal.LEADERS}
    perform(
        carry_out(bootstrap, lambda seen: plan(seen.nodes, seen.partitions, goals), yes=yes, save=save, form=output)
    )
    if what is not None and yes:
        perform(_elect(bootstrap))


async def _elect(bootstrap: str) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        await admin.elect_leaders()


@app.command()
@over_tls
def submit(
    bootstrap: Bootstrap,
    file: Annotated[
        Path, typer.Option("--plan", metavar="FILE", help="JSON of kafka-reassign-partitions, or what --save wrote.")
    ],
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the moves of a plan's file, and submit them with --yes."""
    perform(carry_out(bootstrap, lambda seen: read_plan(file, seen), yes=yes, form=output))


@app.command()
@over_tls
def status(
    bootstrap: Bootstrap,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh the output until nothing is under way.")
    ] = False,
    interval: Annotated[
        Duration, duration_option("--interval", help="With --watch: how often to refresh.", least="200ms")
    ] = read_duration("2s"),
    output: Output = Format.TABLE,
) -> None:
    """Show the moves under way: how much is copied, and what they wait for.

    Exit code 0: nothing is under way; 1: something runs, is queued or waits.
    """
    perform(_status(bootstrap, interval if watch else None, output))


async def _status(bootstrap: str, interval: Duration | None, form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        if interval is not None:
            await watch_until_done(admin, interval.s)
            return
        rows = await progress(admin)
    if form is Format.TABLE and rows:
        console().print(screen(rows, rate=None))
    else:
        plain = [{key: value for key, value in row.items() if key not in _FOR_PEOPLE} for row in rows]
        show(plain, [], form, empty="nothing is under way")
    if rows:
        raise typer.Exit(1)


async def watch_until_done(admin: Admin, interval_s: float, node_id: int | None = None) -> None:
    """Show moves, of a node or all, until none is under way."""
    from rich.live import Live

    before: tuple[float, int] | None = None
    most = 0
    with Live(console=console(), screen=False, auto_refresh=False) as live:
        while rows := await progress(admin, node_id):
            total = sum(row["total_bytes"] for row in rows)
            most = max(most, total)
            # A move that has ended is no row any more, and counts as copied.
            now, left = time.monotonic(), total - sum(row["copied_bytes"] for row in rows)
            rate = (before[1] - left) / (now - before[0]) if before else None
            before = now, left
            live.update(screen(rows, rate, finished_bytes=most - total), refresh=True)
            await asyncio.sleep(interval_s)
    typer.echo("\nnothing is under way" if before else "nothing is under way")


async def progress(admin: Admin, node_id: int | None = None) -> list[dict[str, Any]]:
    """Every move under way as a row, of one node or of all; what is copied is what nodes report of their logs."""
    ongoing = [one for one in await admin.list_partition_reassignments() if node_id in (None, *one.replicas)]
    held = await admin.describe_replicas({one.topic for one in ongoing}) if ongoing else []
    sizes = {(one.topic, one.partition, one.node_id): one.size_bytes for one in held}
    rows = []
    for one in ongoing:
        adding = one.adding or tuple(each for each in one.target if each not in one.replicas)
        own = {each: sizes.get((one.topic, one.partition, each), 0) for each in {*one.replicas, *adding}}
        whole = max((size for each, size in own.items() if each not in adding), default=0)
        copied, total = sum(min(own[each], whole) for each in adding), whole * len(adding)
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
                "waiting_for": {str(each): why for each, why in one.waiting_for.items()},
                "name": f"{one.topic}-{one.partition}",
                "bar": bar(copied, total),
                "since_text": None if one.since_ms is None else duration_text(one.since_ms),
                "waiting_text": "; ".join(f"node {each}: {why}" for each, why in one.waiting_for.items()) or None,
            }
        )
    return rows


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
        list[str] | None, typer.Argument(metavar="[TOPIC-N]...", help="Whose moves end; default: every one.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if fewer replicas than min.insync.replicas are in sync then.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Take back moves under way: the partitions return to the replicas that they had."""
    perform(_cancel(bootstrap, partitions or [], force, yes))


async def _cancel(bootstrap: str, named: Iterable[str], force: bool, yes: bool) -> None:
    from strandline.cli.ask.txn_change import partition_of
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        chosen = [partition_of(name) for name in named]
        chosen = chosen or [(one.topic, one.partition) for one in await admin.list_partition_reassignments()]
        await take_back(admin, chosen, force=force, yes=yes)


async def take_back(admin: Admin, chosen: Iterable[tuple[str, int]], *, force: bool = False, yes: bool) -> None:
    """Cancel these moves, and say what became of them.

    Raises:
        CommandFailed: some are not cancelled; with exit code 2.
    """
    targets: dict[tuple[str, int], Sequence[int] | None] = dict.fromkeys(chosen)
    rows = await admin.alter_partition_reassignments(targets, validate_only=not yes, force=force) if targets else []
    refused = [f"{row.topic}-{row.partition}: {row.refusal}" for row in rows if row.refusal is not None]
    done = "cancelled" if yes else "would be cancelled; nothing was changed, --yes does it"
    typer.echo(f"{count_of(len(rows) - len(refused), 'move')} {done}")
    if refused:
        raise CommandFailed("not cancelled:\n" + "\n".join(f"  {each}" for each in refused), EXIT_REFUSED_PLAN)
