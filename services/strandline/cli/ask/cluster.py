"""`strandline cluster ...`: whether the cluster is healthy, why not, and the progress of every replica.

Invariant: what the controller committed (leader, epoch, ISR) and what leaders measure (LEO, HW, lag) stand side
by side; a leader that does not answer leaves its columns empty and never stops the screen. Without --all the screen
does not grow with the cluster.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.connect import ask, over_tls
from strandline.cli.durations import Duration, read_duration, time_text
from strandline.cli.options import Bootstrap, Interval, Output
from strandline.cli.output import Column, Format, cell, console, for_programs, print_document, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from strandline.cli.ask.health import Health
    from strandline.client import Admin, DescribedCluster, DescribedController, DescribedLeader, DescribedPartition

app = typer.Typer(help="Show whether the cluster is healthy, and if not, why.", no_args_is_help=True)

_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("leader", "leader", number=True),
    Column("leader_epoch", "epoch", number=True),
    Column("isr_text", "ISR"),
    Column("leo", "LEO", number=True),
    Column("high_watermark", "HW", number=True),
    Column("lag_text", "lag"),
]


_MOST_ROWS = 20
"""Partitions that the screen shows without --all."""

_OLD_MS = 5_000
"""From this age on the screen says how old the metadata is; signs of life come every 2 s."""

_NOT_SERVING = frozenset({"fenced", "shutting down"})


@app.callback()
def cluster() -> None:
    """Show whether the cluster is healthy, and if not, why."""


@app.command()
@over_tls
def status(
    bootstrap: Bootstrap,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show every node and partition.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep running and refresh the output.")] = False,
    interval: Interval = read_duration("2s"),
    output: Output = Format.TABLE,
) -> None:
    """Show on one screen whether the cluster is healthy, and what is wrong.

    Exit code 0: healthy; 1: something is wrong, and the screen says what.
    """
    if watch:
        ask(bootstrap, lambda admin: _watch(admin, interval, everything))
        return
    seen = ask(bootstrap, _look)
    if output is Format.TABLE:
        console().print(screen(seen, everything=everything))
    else:
        print_document(document(seen, everything=everything), output)
    if not seen.health.healthy:
        raise typer.Exit(1)


async def _watch(admin: Admin, interval: Duration, everything: bool) -> None:
    from rich.live import Live

    with Live(console=console(), screen=False, auto_refresh=False) as live:
        while True:
            live.update(screen(await _look(admin), everything=everything), refresh=True)
            await asyncio.sleep(interval.s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster:
    """A cluster as it was seen: what the controller committed, the judgement, and what leaders measured."""

    image: DescribedCluster
    health: Health
    views: list[DescribedLeader]
    metadata_age_ms: int | None = None
    """How long the sender of the metadata has not heard of a controller (C62)."""
    controllers: tuple[DescribedController, ...] = ()
    authorization: str = ""
    """The ``authorization`` setting of its nodes; empty without TLS."""


async def _look(admin: Admin) -> SeenCluster:
    from strandline.cli.ask.health import hanging_now, is_under_replicated, judge
    from strandline.client import ControllersAway
    from strandline.core.errors import ErrorCode, Refused

    undecided: tuple[str, ...] = ()
    try:
        image = await admin.metadata(linearizable=True)
    except ControllersAway:
        image = await admin.metadata()
    except Refused as error:
        if error.refusal.code is not ErrorCode.NOT_CONTROLLER:
            raise
        # Nodes serve on, and know who leads (C60).
        undecided = (error.refusal.message,)
        image = await admin.metadata()
    views = await admin.describe_partitions()
    short = sorted({topic.name for topic in image.topics if any(map(is_under_replicated, topic.partitions))})
    # Why a replica is not in sync, only its own node knows.
    held = await admin.describe_replicas(short) if short else []
    health = judge(image, held, await hanging_now(admin, views))
    controllers: tuple[DescribedController, ...] = ()
    try:
        controllers = await admin.describe_controllers()
    except Refused as error:
        if error.refusal.code is ErrorCode.NOT_CONTROLLER:
            undecided = undecided or (error.refusal.message,)
        elif error.refusal.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
    health = replace(health, problems=(*undecided, *health.problems))
    return SeenCluster(
        image=image,
        health=health,
        views=views,
        metadata_age_ms=admin.metadata_age_ms,
        controllers=controllers,
        authorization=" and ".join(sorted(filter(None, await admin.authorizations()))),
    )


def screen(seen: SeenCluster, *, everything: bool = False) -> RenderableType:
    """Verdict, reasons, counts; then the partitions that something is wrong with, or every one."""
    from rich.console import Group
    from rich.text import Text

    image = seen.image
    verdict = Text("healthy", style="bold green") if seen.health.healthy else Text("not healthy", style="bold red")
    verdict.append(
        f"   cluster {image.cluster_id}   controller epoch {image.controller_epoch}   durability {image.durability}"
        f"   feature level {image.feature_level}",
        style="not bold default",
    )
    warning = image.loss_warning
    lines = [verdict, *([Text(f"WARNING  {warning}", style="bold red")] if warning else [])]
    lines += [Text(f"  {problem}", style="yellow") for problem in seen.health.problems]
    if (age_ms := seen.metadata_age_ms) is not None and age_ms >= _OLD_MS:
        lines.append(Text(f"metadata    {age_ms / 1000:,.0f} s old: its sender hears of no controller", style="yellow"))
    if len(seen.controllers) > 1:
        lines.append(Text(f"controllers {_controllers_text(seen.controllers)}"))
    lines += [Text(f"nodes       {_nodes_text(image, everything)}"), Text(f"partitions  {_partitions_text(image)}")]
    if seen.authorization:
        off = ", and every client may do what its role allows" if seen.authorization != "acl" else ""
        lines.append(Text(f"access      authorization {seen.authorization}{off}", style="yellow" if off else ""))
    if (counts := summary(image))["moves_running"] or counts["moves_queued"]:
        moves = f"{counts['moves_running']:,} running, {counts['moves_queued']:,} queued"
        lines.append(Text(f"moves       {moves} (strandline reassign status)"))
    if waiting := _retention_text(seen.views):
        lines.append(Text(f"retention   {waiting}", style="yellow"))
    rows = status_rows(seen, everything=everything)
    shown = rows if everything else rows[:_MOST_ROWS]
    if shown:
        lines.append(Text())
    left_out = len(rows) - len(shown)
    more = [Text(f"and {left_out} more; --all shows every partition", style="dim")] if left_out else []
    return Group(*lines, *([table(shown, _COLUMNS)] if shown else []), *more)


def _retention_text(views: list[DescribedLeader]) -> str:
    """The log whose retention waits longest for a time in the future, and how many others do."""
    waiting = [(until, view) for view in views if (until := view.retention_waits_until_ms) is not None]
    if not waiting:
        return ""
    until_ms, view = max(waiting, key=lambda each: each[0])
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return (
        f"{view.topic}-{view.partition}{more} waits until {time_text(until_ms * 1_000)}, the time of a record; lower "
        f"message.timestamp.after.max.ms to go by the files' times"
    )


def _controllers_text(controllers: tuple[DescribedController, ...]) -> str:
    """Which one decides, and how far the others are behind it."""
    active = [one.controller_id for one in controllers if one.is_active]
    standbys = [f"{one.controller_id} ({one.lag} behind)" for one in controllers if not one.is_active]
    return f"{active[0] if active else 'none'} decides; standby: {', '.join(standbys) or 'none'}"


def _nodes_text(image: DescribedCluster, everything: bool) -> str:
    """How many nodes are in which state; by name those that do not simply serve, or every one."""
    from strandline.cli.ask.node import node_state

    by_state: dict[str, list[int]] = {}
    for node in sorted(image.nodes, key=lambda node: node.node_id):
        by_state.setdefault(node_state(node), []).append(node.node_id)
    said = [
        f"{len(ids)} {state}" + (f" ({', '.join(map(str, ids))})" if everything or state in _NOT_SERVING else "")
        for state, ids in sorted(by_state.items(), key=lambda item: item[0] in _NOT_SERVING)
    ]
    return ", ".join(said) or "none has registered"


def _partitions_text(image: DescribedCluster) -> str:
    counts = summary(image)
    if not counts["partitions"]:
        return "none"
    whole = counts["partitions"] - counts["under_replicated"]
    topics = "1 topic" if counts["topics"] == 1 else f"{counts['topics']:,} topics"
    return f"{counts['partitions']:,} of {topics}, {whole:,} of them with every replica in sync"


def summary(image: DescribedCluster) -> dict[str, int]:
    """How many nodes, topics and partitions there are, and how many of them something is wrong with."""
    from strandline.cli.ask import health

    partitions = [partition for topic in image.topics for partition in topic.partitions]
    return {
        "nodes": len(image.nodes),
        "fenced_nodes": sum(node.fenced for node in image.nodes),
        "topics": len(image.topics),
        "partitions": len(partitions),
        "unavailable": sum(map(health.is_unavailable, partitions)),
        "under_min_isr": sum(map(health.is_under_min_isr, partitions)),
        "under_replicated": sum(map(health.is_under_replicated, partitions)),
        "moves_running": sum(bool(one.original) for one in partitions),
        "moves_queued": sum(bool(one.queued_target) and not one.original for one in partitions),
    }


def document(seen: SeenCluster, *, everything: bool = False) -> dict[str, Any]:
    """The same for programs."""
    from strandline.cli.ask.node import node_rows

    image, rows = seen.image, status_rows(seen, everything=everything)
    return {
        "healthy": seen.health.healthy,
        "problems": list(seen.health.problems),
        "warning": image.loss_warning,
        "cluster_id": image.cluster_id,
        "controller_epoch": image.controller_epoch,
        "feature_level": image.feature_level,
        "metadata_age_ms": seen.metadata_age_ms,
        "authorization": seen.authorization,
        "summary": summary(image),
        "controllers": [
            {
                "controller_id": one.controller_id,
                "client": f"{one.client.host}:{one.client.port}",
                "is_active": one.is_active,
                "metadata_offset": one.offset,
                "lag": one.lag,
            }
            for one in seen.controllers
        ],
        "nodes": node_rows(image),
        "partitions": for_programs(rows),
    }


def status_rows(seen: SeenCluster, *, everything: bool) -> list[dict[str, Any]]:
    """One row per partition, of those that something is wrong with or of all; None where a leader did not answer."""
    from strandline.cli.ask.health import is_wrong, own_topics_first

    by_key = {(view.topic, view.partition): view for view in seen.views}
    return [
        status_row(topic.name, partition, by_key.get((topic.name, partition.partition)))
        for topic in own_topics_first(seen.image)
        for partition in topic.partitions
        if everything or is_wrong(partition)
    ]


def status_row(topic: str, partition: DescribedPartition, view: DescribedLeader | None) -> dict[str, Any]:
    """A partition as controller and leader see it."""
    from strandline.cli.ask.topic import partition_row

    lags = replica_lags(view) if view else None
    return {
        **partition_row(topic, partition),
        "leo": view.leo if view else None,
        "high_watermark": view.high_watermark if view else None,
        "log_start_offset": view.log_start_offset if view else None,
        "lag_records": lags,
        "isr_text": _isr_text(partition),
        "lag_text": _lag_text(lags),
    }


def replica_lags(view: DescribedLeader) -> dict[int, int | None]:
    """Records that each follower has not fetched yet; None: it has not fetched in this leader epoch."""
    return {
        replica.node_id: None if replica.remote_leo is None else max(0, view.leo - replica.remote_leo)
        for replica in view.replicas
    }


def _isr_text(partition: DescribedPartition) -> str:
    out = [node_id for node_id in partition.replicas if node_id not in partition.isr]
    said = {"not": [each for each in out if each not in partition.adding]}
    said["adding"] = [each for each in out if each in partition.adding]
    return cell(partition.isr) + "".join(f" ({what} {cell(nodes)})" for what, nodes in said.items() if nodes)


def _lag_text(lags: dict[int, int | None] | None) -> str | None:
    if lags is None:
        return None
    behind = [
        f"{node_id}: {'not fetching' if lag is None else format(lag, ',')}" for node_id, lag in lags.items() if lag != 0
    ]
    return "  ".join(behind) or "0"
