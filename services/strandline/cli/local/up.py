"""`strandline up`: a whole cluster on this machine, for as long as the command runs.

Invariant: what `up` starts, `up` stops; a child that ends by itself is reported at once, never silently replaced.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.failures import CommandFailed, perform
from strandline.cli.options import key_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.local.local_cluster import LocalCluster
    from strandline.cli.local.processes import Service

_WATCH_S = 0.2
_RESTART_PAUSE_S = 1.0


def up(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Directory of the cluster; the same DIR continues it.")
    ] = Path("strandline-data"),
    nodes: Annotated[int, typer.Option(min=1, max=15, help="Data nodes that may lead.")] = 3,
    workers: Annotated[
        int,
        typer.Option(min=1, max=8, help="Data nodes per --nodes, each of which is then a machine and a rack."),
    ] = 1,
    observers: Annotated[int, typer.Option(min=0, max=5, help="Data nodes that only follow (observers).")] = 0,
    restart: Annotated[bool, typer.Option("--restart", help="Restart a node that exits on its own.")] = False,
    node_setting: Annotated[
        list[str] | None, typer.Option("--node-set", metavar="NAME=VALUE", help="A setting of every node; repeatable.")
    ] = None,
    controller_setting: Annotated[
        list[str] | None, typer.Option("--controller-set", metavar="NAME=VALUE", help="A setting of the controller.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Write the state events of every process to this directory."),
    ] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS, with certificates created in DIR/certs.")] = False,
    controllers: Annotated[
        int, typer.Option(min=1, max=5, help="Number of controllers, one of which is active; more than one need etcd.")
    ] = 1,
) -> None:
    """Run a controller and data nodes on this machine until Ctrl-C.

    Every role is a process of its own. The kernel chooses the ports on the first start of a directory;
    later starts keep the ports and the data.
    """
    from strandline.cli.failures import require_server
    from strandline.cli.local.local_cluster import LocalCluster, Plan

    require_server()
    plan = Plan(
        directory=directory,
        nodes=nodes,
        workers=workers,
        observers=observers,
        controller_settings=_export_settings(export) | _settings(controller_setting, "--controller-set"),
        node_settings=_export_settings(export) | _settings(node_setting, "--node-set"),
        tls=tls,
        controllers=controllers,
    )
    perform(run(LocalCluster(plan), restart=restart))


def _require_etcd() -> None:
    from strandline.etcd.members import HOW_TO_INSTALL, is_installed

    if not is_installed():
        raise CommandFailed(f"several controllers keep what they decide in etcd. {HOW_TO_INSTALL}")


def _settings(entries: list[str] | None, option: str) -> dict[str, str]:
    return {name.replace("-", "_"): value for name, value in key_values(entries or [], option).items()}


def _export_settings(directory: Path | None) -> dict[str, str]:
    return {} if directory is None else {"export_dir": str(directory.resolve())}


async def run(cluster: LocalCluster, *, restart: bool) -> None:
    """Starts ``cluster``, watches it until SIGINT or SIGTERM, stops it.

    Raises:
        CommandFailed: when a process does not come up, or the controller ends by itself.
    """
    if len(cluster.controllers) > 1:
        _require_etcd()
    stop_asked = asyncio.Event()
    with _signals(stop_asked):
        try:
            await _start(cluster, stop_asked)
            await _watch(cluster, stop_asked, restart=restart)
        finally:
            await _stop(cluster)


async def _start(cluster: LocalCluster, stop_asked: asyncio.Event) -> None:
    from strandline.cli.local.processes import ServiceDied

    count = len(cluster.controllers)
    who = "a controller" if count == 1 else f"etcd, {count} controllers"
    typer.echo(f"starting {who} and {len(cluster.nodes)} nodes in {cluster.directory}")
    starting = asyncio.create_task(cluster.start())
    asked = asyncio.create_task(stop_asked.wait())
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return
    try:
        starting.result()
    except (ServiceDied, TimeoutError) as error:
        raise CommandFailed(str(error)) from error
    _print_endpoints(cluster)


def _print_endpoints(cluster: LocalCluster) -> None:
    from dataclasses import asdict

    from strandline.cli.local.processes import read_address
    from strandline.cli.output import Column, console, table

    rows = []
    for service in cluster.services:
        address = read_address(service.directory)
        assert address is not None, f"{service.name} serves without an endpoint"
        rows.append({**asdict(address), "name": service.name, "pid": str(address.pid)})
    columns = [
        Column("name", "process"),
        Column("client", "for clients"),
        Column("internal", "internal"),
        Column("pid", "pid"),
    ]
    screen = console()
    screen.print()
    screen.print(table(rows, columns))
    screen.print()
    screen.print(f"  export STRANDLINE_BOOTSTRAP={cluster.bootstrap_with_nodes}", soft_wrap=True)
    for name, path in cluster.client_tls().items():
        if path:
            screen.print(f"  export STRANDLINE_{name.upper()}={path}", soft_wrap=True)
    screen.print()
    screen.print("  strandline console     # the cluster in a browser, from another terminal", style="dim")
    screen.print()
    screen.print("serving; Ctrl-C stops everything and keeps the data", style="dim")


async def _watch(cluster: LocalCluster, stop_asked: asyncio.Event, *, restart: bool) -> None:
    while not stop_asked.is_set():
        for node_id, service in cluster.nodes.items():
            await _see_to(cluster, node_id, service, restart=restart)
        for number, controller in cluster.controllers.items():
            if controller.found_dead() is not None:
                await _see_to_controller(cluster, number, controller, restart=restart)
        try:
            await asyncio.wait_for(stop_asked.wait(), _WATCH_S)
        except TimeoutError:
            continue


async def _see_to_controller(cluster: LocalCluster, number: int, controller: Service, *, restart: bool) -> None:
    """Reports a controller that ended by itself, and starts it again if that was asked for.

    Raises:
        CommandFailed: it was the only one, and it was not.
    """
    if not restart and len(cluster.controllers) == 1:
        raise CommandFailed(f"{controller.epitaph()}; output: {controller.output}")
    typer.echo(controller.epitaph(), err=True)
    controller.end_expected = True
    if not restart:
        typer.echo(f"the others go on without {controller.name}", err=True)
        return
    await asyncio.sleep(_RESTART_PAUSE_S)
    await cluster.start_controller(number=number)


async def _see_to(cluster: LocalCluster, node_id: int, service: Service, *, restart: bool) -> None:
    """Reports a node that ended by itself, once, and starts it again if that was asked for."""
    from strandline.cli.local.processes import ServiceDied

    end = service.found_dead()
    if end is None:
        return
    if end.code == 0:
        service.end_expected = True
        typer.echo(f"{service.name} has left in good order; {_by_hand(service)}")
        return
    typer.echo(service.epitaph(), err=True)
    service.end_expected = True
    if not restart:
        typer.echo(f"the others go on without {service.name}; {_by_hand(service)}", err=True)
        return
    await asyncio.sleep(_RESTART_PAUSE_S)
    try:
        address = await cluster.start_node(node_id)
    except (ServiceDied, TimeoutError) as error:
        typer.echo(f"{service.name} did not come back: {error}", err=True)
    else:
        typer.echo(f"{service.name} serves again at {address.client} (pid {address.pid})")


def _by_hand(service: Service) -> str:
    """How one data node is started again beside the others: by the words that it was started with."""
    return f"start it again with: strandline replica {shlex.join(service.command[3:])}"


async def _stop(cluster: LocalCluster) -> None:
    if not any(service.running for service in cluster.services):
        return
    typer.echo("stopping")
    for end in await cluster.stop():
        if end.forced or end.code != 0:
            typer.echo(end.sentence, err=True)
    typer.echo(f"stopped; the data is in {cluster.directory}")


@contextmanager
def _signals(stop_asked: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_asked.set)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
