"""`strandline sim transactions`: search every order of batches, questions, markers and time-outs of a producer.

Invariant: exit code 1 means that a transaction was torn, read before it was decided, or not ended (I36 to I38, L13).
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.world_search import show


def transactions(
    transactions: Annotated[int, typer.Option("--transactions", min=1, help="How many the producer begins.")] = 2,
    mishaps: Annotated[
        int,
        typer.Option("--mishaps", min=0, help="Late copies, deadlines, deaths of leaders and coordinators, in total."),
    ] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search transactions over two partitions, the production core deciding: is each one ended whole, everywhere?"""
    from strandline.sim.transactions import Bounds, search

    bounds = Bounds(transactions=transactions, mishaps=mishaps)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))
