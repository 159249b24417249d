"""`strandline node drain`, `undrain` and `replace`: a node's replicas go to the others, or to one in its place.

Invariant: what cannot end is refused before anything moves; with --remove the node's process is stopped, and the node
removed, only when no partition names it any more.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace as changed
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.ask.planning import Save, Seen, Yes, carry_out
from strandline.cli.ask.reassign import take_back, watch_until_done
from strandline.cli.ask.throttle import Force, Limit, Throttle
from strandline.cli.connect import ask, over_tls
from strandline.cli.failures import CommandFailed
from strandline.cli.options import Bootstrap, Output
from strandline.cli.output import Format
from strandline.core.errors import ErrorCode, Refused
from strandline.core.planning import plan
from strandline.core.planning.values import Goal, Plan

if TYPE_CHECKING:
    from strandline.client import Admin

_EVERY_S = 1.0
_STOP_S = 60
"""How long a drained node may take to stop and its session to end."""

Node = Annotated[int, typer.Argument(metavar="NODE", help="The node's id.")]


@over_tls
def drain(
    node_id: Node,
    bootstrap: Bootstrap,
    remove: Annotated[
        bool, typer.Option("--remove", help="With --yes: wait until it is empty, stop it, and remove it.")
    ] = False,
    throttle: Throttle = None,
    force: Force = False,
    yes: Yes = False,
    save: Save = None,
    output: Output = Format.TABLE,
) -> None:
    """Plan the moves that empty a node; --yes submits them, and the node gets nothing new."""

    def make(seen: Seen) -> Plan:
        if node_id not in {node.node_id for node in seen.nodes}:
            return Plan(refusals=(plan.unknown_node(node_id),))
        nodes = [changed(node, draining=node.draining or node.node_id == node_id) for node in seen.nodes]
        return plan.plan(nodes, seen.partitions, {Goal.DRAINED})

    limit = Limit(throttle, force)
    carry_out(
        bootstrap,
        make,
        yes=yes,
        save=save,
        form=output,
        limit=limit,
        first=lambda admin: admin.drain_node(node_id),
    )
    if yes and remove:
        ask(bootstrap, lambda admin: _remove(admin, node_id, stderr=output is not Format.TABLE))


async def _remove(admin: Admin, node_id: int, *, stderr: bool) -> None:
    """Wait until no partition names the node, have it stop, and remove it; on ``stderr`` people can follow that.

    Raises:
        CommandFailed: its session did not end in time.
    """
    await watch_until_done(admin, _EVERY_S, node_id, stderr=stderr)
    node = next((node for node in (await admin.metadata()).nodes if node.node_id == node_id), None)
    if node is not None and not node.fenced:
        await admin.shutdown_node(node_id, node_epoch=node.node_epoch)
    why = ""
    for _ in range(int(_STOP_S / _EVERY_S)):
        try:
            await admin.unregister_node(node_id)
        except Refused as refused:
            if refused.refusal.code is not ErrorCode.INVALID_REQUEST:
                raise
            why = refused.refusal.message
            await asyncio.sleep(_EVERY_S)
        else:
            typer.echo(f"removed node {node_id}", err=stderr)
            return
    raise CommandFailed(f"node {node_id} holds nothing and is not removed: {why}")


@over_tls
def undrain(node_id: Node, bootstrap: Bootstrap, yes: Yes = False) -> None:
    """Show the moves that take replicas from a drained node; --yes cancels them, and the node takes replicas again."""
    ask(bootstrap, lambda admin: _undrain(admin, node_id, yes))
    typer.echo(f"node {node_id} {'takes' if yes else 'would take'} replicas again")


async def _undrain(admin: Admin, node_id: int, yes: bool) -> None:
    """A move does not say who submitted it, so every one is shown that takes a replica from the node.

    Raises:
        CommandFailed: there is no such node; or some moves are not cancelled, with exit code 2.
    """
    if node_id not in {node.node_id for node in (await admin.metadata()).nodes}:
        raise CommandFailed(f"BROKER_ID_NOT_REGISTERED: {plan.unknown_node(node_id)}")
    ongoing = await admin.list_partition_reassignments()
    leaving = [one for one in ongoing if node_id in {*one.replicas} - {*one.target}]
    for one in leaving:
        typer.echo(f"{one.topic}-{one.partition}: {one.state}, to {','.join(map(str, one.target))}")
    if yes:
        await admin.drain_node(node_id, draining=False)
    await take_back(admin, [(one.topic, one.partition) for one in leaving], yes=yes)


@over_tls
def replace(
    old: Annotated[int, typer.Argument(metavar="OLD", help="The node that is gone or will be removed.")],
    new: Annotated[int, typer.Argument(metavar="NEW", help="The node that takes its place in every partition.")],
    bootstrap: Bootstrap,
    throttle: Throttle = None,
    force: Force = False,
    yes: Yes = False,
    save: Save = None,
    output: Output = Format.TABLE,
) -> None:
    """Plan that one node takes the place of another, and nothing else moves; --yes submits it."""
    carry_out(
        bootstrap,
        lambda seen: plan.replace(seen.nodes, seen.partitions, old, new),
        yes=yes,
        save=save,
        form=output,
        limit=Limit(throttle, force),
    )
