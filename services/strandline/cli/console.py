"""`strandline console`: serve the web console.

Invariant: `strandline console X` and `python -m strandline.console X` are the same.
"""

from __future__ import annotations

import typer


def console(context: typer.Context) -> None:
    """Serve web pages that show what is wrong now: partitions, replicas, nodes, topics, live."""
    from strandline.console.__main__ import main

    raise typer.Exit(int(main(list(context.args))))
