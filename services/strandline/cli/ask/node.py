"""`strandline node ...`: list the data nodes, drain, replace or stop one, remove one that is gone for good.

Invariant: `shutdown` is the controlled way (leaders move first); nothing here kills a process. Whether a node may be
removed is the controller's decision alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask import drain
from strandline.cli.connect import ask, over_tls
from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, perform
from strandline.cli.local.processes import ENDPOINT_FILE
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Column, Format, for_programs, show
from strandline.units import duration_text

if TYPE_CHECKING:
    from strandline.client import Admin, DescribedCluster, DescribedNode, Endpoint as DescribedEndpoint, ListedNode
    from strandline.core.messages import Endpoint
    from strandline.node.settings import ReplicaSettings
    from strandline.rpc.tls import Tls


app = typer.Typer(help="List the data nodes; drain, replace, shut down or remove one.", no_args_is_help=True)

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

    async def look(admin: Admin) -> tuple[DescribedCluster, list[ListedNode]]:
        return await admin.metadata(), await admin.list_nodes()

    image, listed = ask(bootstrap, look)
    rows = node_rows(image)
    by_id = {entry.node.node_id: entry for entry in listed}
    for row in rows:
        entry = by_id.get(row["node_id"])
        age_ms = entry.last_heartbeat_age_ms if entry else None
        row["last_heartbeat_age_ms"] = age_ms
        row["heartbeat_text"] = None if age_ms is None else f"{duration_text(age_ms)} ago"
        row["directory_id"] = entry.directory_id if entry else None
        row["feature_levels"] = f"{entry.feature_min}-{entry.feature_max}" if entry else None
    show(rows if output is Format.TABLE else for_programs(rows), _COLUMNS, output, empty="no node has registered")


@app.command()
@over_tls
def remove(
    node_id: Annotated[int, typer.Argument(metavar="NODE", help="The node's id.")],
    bootstrap: Bootstrap,
) -> None:
    """Remove a node that is gone for good from the cluster.

    Refused while its session lives, and while partitions are assigned to it: `node drain` or `replace` moves them.
    Its id may register again, as a new node.
    """
    ask(bootstrap, lambda admin: admin.unregister_node(node_id))
    typer.echo(f"removed node {node_id}")


@app.command()
@over_tls
def shutdown(
    node_id: Annotated[int | None, typer.Argument(metavar="[NODE]", help="The node's id.")] = None,
    bootstrap: Bootstrap = "",
    itself: Annotated[
        bool,
        typer.Option("--self", help="The node on this machine that STRANDLINE_ variables configure; wait for it."),
    ] = False,
    deadline: Annotated[
        Duration, duration_option("--deadline", help="With --self: how long to wait at most.", least="100ms")
    ] = read_duration("30s"),
) -> None:
    """Ask a node to hand over its leaderships and end (controlled shutdown)."""
    if itself == (node_id is not None):
        raise typer.BadParameter("name a NODE, or --self, and not both")
    if itself:
        typer.echo(perform(leave(deadline.s)))
        return
    assert node_id is not None
    if not bootstrap:
        raise typer.BadParameter("--bootstrap or STRANDLINE_BOOTSTRAP must say where to find the cluster")
    ask(bootstrap, lambda admin: admin.shutdown_node(node_id))
    typer.echo(f"node {node_id} is shutting down; `strandline node list` shows when it is gone")


app.command("drain")(drain.drain)
app.command("undrain")(drain.undrain)
app.command("replace")(drain.replace)


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
    if node.draining:
        return "draining"
    return "observing" if node.is_observer else "serving"


def _address(endpoint: DescribedEndpoint | None) -> str | None:
    return f"{endpoint.host}:{endpoint.port}" if endpoint else None


# ---- node_self
# `strandline node shutdown --self`: the node of this data directory hands over what it leads, and the command waits.
#
# Invariant: it speaks for one process and no other. Which one stands in the directory that the settings name, with the
# node epoch that the controller gave it; a directory that a later process has taken over belongs to that one.

_ASK_EVERY_S = 0.1
_CALL_MS = 2_000


@dataclass(frozen=True, slots=True)
class Incarnation:
    """The process that serves a data directory, as the controller knows it."""

    node_id: int
    node_epoch: int


async def leave(deadline_s: float) -> str:
    """Ask the controller to move away what this node leads; returns the sentence to print once it leads nothing.

    Raises:
        CommandFailed: the settings are wrong, no process answered, or leaders were left at the deadline.
    """
    settings = _own_settings()
    found = running_node(settings.data_dir)
    if found is None:
        return f"no node runs on {settings.data_dir}; there is nothing to hand over"
    until = time.monotonic() + deadline_s
    left = await _hand_over(settings, found, until)
    if left is None:
        return f"node {found.node_id} is not this process any more; there is nothing to hand over"
    if left:
        raise CommandFailed(
            f"node {found.node_id} still leads {left} partitions after {deadline_s:g} s: no other replica of theirs is "
            f"in sync; `strandline topic describe` shows them"
        )
    return f"node {found.node_id} leads nothing any more"


def _own_settings() -> ReplicaSettings:
    from strandline.node.settings import ReplicaSettings
    from strandline.runtime.settings import SettingsWrong, load_settings

    try:
        return load_settings(ReplicaSettings, flags={}, variables=os.environ).settings
    except SettingsWrong as error:
        raise CommandFailed(
            f"--self reads the node's own settings from STRANDLINE_ variables: {error}", EXIT_UNREACHABLE
        ) from error


def running_node(directory: Path) -> Incarnation | None:
    """The process that wrote its endpoint into ``directory``, if that very process runs where we run."""
    from strandline.runtime.process import started_ticks

    try:
        written = json.loads((directory / ENDPOINT_FILE).read_text())
        pid, started = int(written["pid"]), int(written["started_ticks"])
        found = Incarnation(node_id=int(written["node_id"]), node_epoch=int(written["node_epoch"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if started_ticks(pid) == started else None


async def _hand_over(settings: ReplicaSettings, node: Incarnation, until: float) -> int | None:
    """Ask until the node leads nothing: how many partitions are left; None if it is not the registered process."""
    from strandline.core.errors import ErrorCode, Refused
    from strandline.rpc.tls import open_tls

    tls = open_tls(settings.tls_cert, settings.tls_key, settings.tls_ca)
    # A newer process registered under this id, or the controller never heard of it.
    gone = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
    left, failure = 1, "not asked"
    while True:
        for address in settings.bootstrap():
            try:
                left, failure = await _ask(address, tls, node), ""
                break
            except Refused as error:
                if error.refusal.code in gone:
                    return None
                failure = str(error.refusal)
        if left == 0:
            return 0
        if time.monotonic() + _ASK_EVERY_S > until:
            break
        await asyncio.sleep(_ASK_EVERY_S)
    if failure:
        raise CommandFailed(f"no controller accepted the shutdown of node {node.node_id}: {failure}", EXIT_UNREACHABLE)
    return left


async def _ask(address: Endpoint, tls: Tls | None, node: Incarnation) -> int:
    """ShutdownNode for this incarnation; the number of partitions it still leads."""
    from strandline.client.administer.admin_answers import check
    from strandline.rpc.channels import call, open_channel
    from strandline.v1 import controller_service_pb2 as pb, controller_service_pb2_grpc as pb_grpc

    request = pb.ShutdownNodeRequest(node_id=node.node_id, node_epoch=node.node_epoch)
    async with open_channel(address, tls=tls) as channel:
        stub = pb_grpc.ControllerServiceStub(channel)
        answer = await call(stub.ShutdownNode, request, deadline_ms=_CALL_MS)
    check(answer)
    return sum(len(topic.partitions) for topic in answer.remaining_partitions)
