"""`strandline cluster ...`: is the cluster healthy, why not, and how far is every replica.

Invariant: what the controller committed (leader, epoch, ISR) and what leaders measure (LEO, HW, lag) stand side
by side; a leader that does not answer leaves its columns empty and never stops the screen.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import perform
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, cell, console, print_document, table
from strandline.cli.over_tls import over_tls

if TYPE_CHECKING:
    from rich.console import RenderableType

    from strandline.cli.health import Health
    from strandline.core.messages import MetadataImage, PartitionImage, PartitionView
    from strandline.core.types import TopicPartition

app = typer.Typer(help="See whether the cluster is healthy, and why not.", no_args_is_help=True)

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


@app.callback()
def cluster() -> None:
    """See whether the cluster is healthy, and why not."""


@app.command()
@over_tls
def status(
    bootstrap: Bootstrap,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show it again and again.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between looks.")] = 2.0,
    output: Output = Format.TABLE,
) -> None:
    """Show on one screen whether the cluster is healthy, then every partition.

    Exit code 0: healthy; 1: something is wrong, and the screen says what.
    """
    perform(_watch(bootstrap, interval_s) if watch else _status(bootstrap, output))


async def _status(bootstrap: str, form: Format) -> None:
    from strandline.cli.connect import open_admin
    from strandline.cli.health import judge

    async with open_admin(bootstrap) as admin:
        image = await admin.metadata()
        views = await admin.describe_partitions()
    health, rows = judge(image), status_rows(image, views)
    if form is Format.TABLE:
        console().print(screen(image, health, rows))
    else:
        print_document(document(image, health, rows), form)
    if not health.healthy:
        raise typer.Exit(1)


async def _watch(bootstrap: str, interval_s: float) -> None:
    from rich.live import Live

    from strandline.cli.connect import open_admin
    from strandline.cli.health import judge

    async with open_admin(bootstrap) as admin:
        with Live(console=console(), screen=False, auto_refresh=False) as live:
            while True:
                image = await admin.metadata()
                views = await admin.describe_partitions()
                live.update(screen(image, judge(image), status_rows(image, views)), refresh=True)
                await asyncio.sleep(interval_s)


def screen(image: MetadataImage, health: Health, rows: list[dict[str, Any]]) -> RenderableType:
    """The whole screen: verdict, reasons, nodes in one line, partitions."""
    from rich.console import Group
    from rich.text import Text

    from strandline.cli.node import node_state
    from strandline.core.truncation import loss_warning

    verdict = Text("healthy", style="bold green") if health.healthy else Text("not healthy", style="bold red")
    verdict.append(
        f"   cluster {image.cluster_id}   controller epoch {image.controller_epoch}   "
        f"durability {image.rules.durability.value}",
        style="not bold default",
    )
    warning = loss_warning(image.rules)
    reasons = [Text(f"WARNING  {warning}", style="bold red")] if warning else []
    reasons += [Text(f"  {problem}", style="yellow") for problem in health.problems]
    nodes = "   ".join(
        f"{node.node_id} {node_state(node)}" for node in sorted(image.nodes, key=lambda node: node.node_id)
    )
    lines = [verdict, *reasons, Text(f"nodes   {nodes or 'none has registered'}"), Text()]
    return Group(*lines, table(rows, _COLUMNS) if rows else Text("no topics", style="dim"))


def document(image: MetadataImage, health: Health, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The same for programs."""
    from strandline.cli.node import node_rows
    from strandline.core.truncation import loss_warning

    shown = [{key: value for key, value in row.items() if not key.endswith("_text")} for row in rows]
    return {
        "healthy": health.healthy,
        "problems": list(health.problems),
        "warning": loss_warning(image.rules),
        "cluster_id": image.cluster_id,
        "controller_epoch": image.controller_epoch,
        "nodes": node_rows(image),
        "partitions": shown,
    }


def status_rows(image: MetadataImage, views: list[PartitionView]) -> list[dict[str, Any]]:
    """One row per partition; offsets and lags are None where its leader did not answer."""
    by_key: dict[TopicPartition, PartitionView] = {view.tp: view for view in views}
    return [
        status_row(topic.name, partition, by_key.get(partition.tp))
        for topic in sorted(image.topics, key=lambda topic: topic.name)
        for partition in topic.partitions
    ]


def status_row(topic: str, partition: PartitionImage, view: PartitionView | None) -> dict[str, Any]:
    """A partition as controller and leader see it."""
    from strandline.cli.topic import partition_row

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


def replica_lags(view: PartitionView) -> dict[int, int | None]:
    """Records that each follower has not fetched yet; None: it has not fetched in this leader epoch."""
    return {
        replica.node_id: None if replica.remote_leo is None else max(0, view.leo - replica.remote_leo)
        for replica in view.replicas
    }


def _isr_text(partition: PartitionImage) -> str:
    missing = [str(node_id) for node_id in partition.replicas if node_id not in partition.isr]
    return cell(partition.isr) + (f" (not {','.join(missing)})" if missing else "")


def _lag_text(lags: dict[int, int | None] | None) -> str | None:
    if lags is None:
        return None
    behind = [
        f"{node_id}: {'not fetching' if lag is None else format(lag, ',')}" for node_id, lag in lags.items() if lag != 0
    ]
    return "  ".join(behind) or "0"
