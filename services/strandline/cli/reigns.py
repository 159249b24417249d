"""`strandline sim reigns`: search every order of answers, losses and pauses between two controllers and their store.

Invariant: exit code 1 means that an invariant of reigns (I19 to I22, I41) does not hold.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.world_search import show


def reigns(
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="Transactions in all.")] = 2,
    campaigns: Annotated[int, typer.Option("--campaigns", min=1, help="How often the election key is put.")] = 2,
    endings: Annotated[int, typer.Option("--endings", min=0, help="Leases that end early or late.")] = 1,
    takings: Annotated[int, typer.Option("--takings", min=0, help="Keys taken or handed over.")] = 0,
    late: Annotated[int, typer.Option("--late", min=0, help="Writes without an answer that may come late.")] = 0,
    restores: Annotated[
        int, typer.Option("--restores", min=0, max=1, help="Stores put back, with the controllers' files lost.")
    ] = 0,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search reigns, the production core deciding: does a controller ever write, or begin, where another one reigns?"""
    from strandline.sim.reigns import Bounds, search

    bounds = Bounds(transactions, campaigns, endings, takings, late, restores)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))
