"""`strandline node ...`: list the data nodes, ask one to leave in good order, remove one that is gone for good.

Invariant: `shutdown` is the controlled way (leaders move first); nothing here kills a process. Whether a node may be
removed is the controller's decision alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import perform
from strandline.cli.options import Bootstrap, MaybeBootstrap, Output
from strandline.cli.output import Column, Format, show
from strandline.cli.over_tls import over_tls
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.client import DescribedCluster, DescribedNode, Endpoint

app = typer.Typer(help="List the data nodes; shut one down cleanly; remove one permanently.", no_args_is_help=True)

_COLUMNS = [
    Column("node_id", "node", number=True),
    Column("state", "state"),
    Column("roles", "roles"),
    Column("leads", "leads", number=True),
    Column("replicas", "replicas", number=True),
    Column("in_isr", "in ISR", number=True),
    Column("node_epoch", "node epoch", number=True),
    Column("feature_levels", "levels"),
    Column("heartbeat_text", "heartbeat", number=True),
    Column("client", "for clients"),
    Column("rack", "rack"),
]


@app.command("list")
@over_tls
def list_nodes(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List the registered data nodes with their state and what they hold."""
    perform(_list(bootstrap, output))


async def _list(bootstrap: str, form: Format) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        image = await admin.metadata()
        listed = {entry.node.node_id: entry for entry in await admin.list_nodes()}
    rows = node_rows(image)
    for row in rows:
        entry = listed.get(row["node_id"])
        age_ms = entry.last_heartbeat_age_ms if entry else None
        row["last_heartbeat_age_ms"] = age_ms
        row["heartbeat_text"] = None if age_ms is None else f"{duration_text(age_ms)} ago"
        row["directory_id"] = entry.directory_id if entry else None
        row["feature_levels"] = f"{entry.feature_min}-{entry.feature_max}" if entry else None
    if form is not Format.TABLE:
        rows = [{key: value for key, value in row.items() if key != "heartbeat_text"} for row in rows]
    show(rows, _COLUMNS, form, empty="no node has registered")


@app.command()
@over_tls
def remove(
    node_id: Annotated[int, typer.Argument(metavar="NODE", help="The node's id.")],
    bootstrap: Bootstrap,
) -> None:
    """Remove a node that is gone for good from the cluster.

    Refused while its session lives, and while partitions are assigned to it. Its id may register again, as a new node.
    """
    perform(_remove(bootstrap, node_id))


async def _remove(bootstrap: str, node_id: int) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        await admin.unregister_node(node_id)
    typer.echo(f"removed node {node_id}")


@app.command()
@over_tls
def shutdown(
    node_id: Annotated[int | None, typer.Argument(metavar="[NODE]", help="The node's id.")] = None,
    bootstrap: MaybeBootstrap = "",
    itself: Annotated[
        bool,
        typer.Option("--self", help="The node on this machine that STRANDLINE_ variables configure; wait for it."),
    ] = False,
    deadline: Annotated[
        Duration, duration_option("--deadline", help="With --self: the longest wait.", least="100ms")
    ] = read_duration("30s"),
) -> None:
    """Ask a node to hand over its leaderships and end (controlled shutdown)."""
    if itself == (node_id is not None):
        raise typer.BadParameter("name a NODE, or --self, and not both")
    if itself:
        from strandline.cli.node_self import leave

        typer.echo(perform(leave(deadline.s)))
        return
    assert node_id is not None
    if not bootstrap:
        raise typer.BadParameter("--bootstrap or STRANDLINE_BOOTSTRAP must say where to find the cluster")
    perform(_shutdown(bootstrap, node_id))


async def _shutdown(bootstrap: str, node_id: int) -> None:
    from strandline.cli.connect import open_admin

    async with open_admin(bootstrap) as admin:
        await admin.shutdown_node(node_id)
    typer.echo(f"node {node_id} is shutting down; `strandline node list` shows when it is gone")


def node_rows(image: DescribedCluster) -> list[dict[str, Any]]:
    """Every registered node as a row, in order of id."""
    return [_row(node, image) for node in sorted(image.nodes, key=lambda node: node.node_id)]


def _row(node: DescribedNode, image: DescribedCluster) -> dict[str, Any]:
    partitions = [partition for topic in image.topics for partition in topic.partitions]
    return {
        "node_id": node.node_id,
        "state": node_state(node),
        "roles": sorted(node.roles),
        "leads": sum(partition.leader == node.node_id for partition in partitions),
        "replicas": sum(node.node_id in partition.replicas for partition in partitions),
        "in_isr": sum(node.node_id in partition.isr for partition in partitions),
        "node_epoch": node.node_epoch,
        "client": _address(node.client_endpoint),
        "internal": _address(node.internal_endpoint),
        "rack": node.rack,
    }


def node_state(node: DescribedNode) -> str:
    """A node's state in a word or two."""
    if node.fenced:
        return "fenced"
    if node.shutting_down:
        return "shutting down"
    if node.disk_nearly_full:
        return "disk nearly full"
    return "observing" if node.is_observer else "serving"


def _address(endpoint: Endpoint | None) -> str | None:
    return f"{endpoint.host}:{endpoint.port}" if endpoint else None
