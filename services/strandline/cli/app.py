"""The commands and the order in which `--help` lists them; those that become a role's process.

Commands of other packages (simulator, analytics, history of Kafka) are found by their entry points.

Invariant: importing this file imports typer and the command modules, all of which import their work lazily.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from strandline.cli import settings
from strandline.cli.ask import access, cluster, consume, group, node, produce, reassign, topic, txn
from strandline.cli.demo import command as demo
from strandline.cli.failures import installed_elsewhere
from strandline.cli.local import certs, export, log, profile, up
from strandline.cli.options import in_todays_words
from strandline.cli.perf import command as perf

_ORDER = (
    "topic produce consume group txn perf cluster node acl quota rebalance reassign log profile up demo console export "
    "analytics scenario sim controller replica settings certs completion"
)


class InOrder(TyperGroup):
    """Lists the commands as a newcomer meets them, not groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands' names in the order of `--help`."""
        return sorted(super().list_commands(ctx), key=_ORDER.split().index)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the options before the command; options after it may have their former names."""
        return super().parse_args(ctx, in_todays_words(args))


app = typer.Typer(
    name="strandline",
    cls=InOrder,
    rich_markup_mode=None,
    help="A replicated commit log of gRPC services, one per role, with Kafka's replication protocol.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(txn.app, name="txn")
app.add_typer(perf.app, name="perf")
app.add_typer(cluster.app, name="cluster")
app.add_typer(node.app, name="node")
app.add_typer(access.acls, name="acl")
app.add_typer(access.quotas, name="quota")
app.command("rebalance")(reassign.rebalance)
app.add_typer(reassign.app, name="reassign")
app.add_typer(log.app, name="log")
app.add_typer(profile.app, name="profile")
app.command("up")(up.up)
app.command("demo")(demo.demo)
app.add_typer(export.app, name="export")
app.add_typer(certs.app, name="certs")
app.command("settings", context_settings=settings.PASS_FLAGS)(settings.settings)
for name, command in installed_elsewhere():
    app.add_typer(command, name=name)


def _print_version(wanted: bool) -> None:
    if wanted:
        from strandline import __version__

        typer.echo(f"strandline {__version__}")
        raise typer.Exit


@app.callback()
def strandline(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A replicated commit log of gRPC services, one per role, with Kafka's replication protocol."""


# ---- roles
# `strandline controller`, `replica` and `console`: become one role's process; `completion` for shells.
#
# Invariant: the role's own package reads its settings; here the arguments are only passed on, so that
# `strandline replica X` and `python -m strandline.node X` are the same.

_PASS_FLAGS: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASS_FLAGS)
def controller(context: typer.Context) -> None:
    """Run the controller: who leads, at which epoch, with which ISR.

    `strandline controller [run] [settings]`; `strandline controller backup` copies its store, beside it or while it is
    stopped; `restore` puts a copy in its place; `migrate` moves it between SQLite and etcd; `recover` accepts an older
    store; `hand-over` leaves deciding to another controller.
    """
    from strandline.controller.__main__ import main

    words = list(context.args)
    raise typer.Exit(int(main(words[1:] if words[:1] == ["run"] else words)))


@app.command(context_settings=_PASS_FLAGS)
def replica(context: typer.Context) -> None:
    """Run a data node. `--roles follower` makes it an observer, which never leads."""
    from strandline.node.__main__ import main

    raise typer.Exit(int(main(list(context.args))))


@app.command(context_settings=_PASS_FLAGS)
def console(context: typer.Context) -> None:
    """Serve web pages that show what is wrong now: partitions, replicas, nodes, topics, live."""
    from strandline.console.__main__ import main

    raise typer.Exit(int(main(list(context.args))))


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(help="Shell to write the script for.")] = Shell.BASH,
) -> None:
    """Print a shell completion script.

    For bash: strandline completion bash > ~/.local/share/bash-completion/completions/strandline
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="strandline", complete_var="_STRANDLINE_COMPLETE", shell=shell.value))
