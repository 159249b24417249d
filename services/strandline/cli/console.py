"""`strandline console`: serve the web console.

Invariant: `strandline console X` and `python -m strandline.console X` are the same; what is missing (the extra) is told
in one line before anything else is tried.
"""

from __future__ import annotations

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail


def console(context: typer.Context) -> None:
    """Serve web pages that show what is wrong now: partitions, replicas, nodes, topics, live."""
    try:
        from strandline.console.__main__ import main
    except ImportError as error:
        said = f"this needs the console's libraries ({error.name} is missing); pip install 'strandline[console]'"
        raise fail(CommandFailed(said, EXIT_REFUSED)) from error
    raise typer.Exit(int(main(list(context.args))))
