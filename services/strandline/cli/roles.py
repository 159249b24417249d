"""`strandline controller`, `replica` and `console`: become one role's process; `completion` for shells.

Invariant: the role's own package reads its settings; this file only passes the arguments on, so that
`strandline replica X` and `python -m strandline.node X` are the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

PASS_FLAGS: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def controller(context: typer.Context) -> None:
    """Run the controller: who leads, at which epoch, with which ISR.

    `strandline controller [run] [settings]`; `strandline controller backup` copies its store, beside it or while it is
    stopped; `restore` puts a copy in its place; `migrate` moves it between SQLite and etcd; `recover` accepts an older
    store; `hand-over` leaves deciding to another controller.
    """
    from strandline.controller.__main__ import main

    words = list(context.args)
    raise typer.Exit(int(main(words[1:] if words[:1] == ["run"] else words)))


def replica(context: typer.Context) -> None:
    """Run a data node. `--roles follower` makes it an observer, which never leads."""
    from strandline.node.__main__ import main

    raise typer.Exit(int(main(list(context.args))))


def console(context: typer.Context) -> None:
    """Serve web pages that show what is wrong now: partitions, replicas, nodes, topics, live."""
    from strandline.console.__main__ import main

    raise typer.Exit(int(main(list(context.args))))


class Shell(StrEnum):
    """Shells that have a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Shell to write the script for.")] = Shell.BASH,
) -> None:
    """Print a shell completion script.

    For bash: strandline completion bash > ~/.local/share/bash-completion/completions/strandline
    """
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="strandline", complete_var="_STRANDLINE_COMPLETE", shell=shell.value))
