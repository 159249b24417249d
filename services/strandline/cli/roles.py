"""`strandline controller` and `strandline replica`: become one role's process.

Invariant: the role's own package reads its settings; this file only hands the words over, so that
`strandline replica X` and `python -m strandline.node X` are the same.
"""

from __future__ import annotations

from typing import Any

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
