"""`strandline sim rebalances`: search every order of heartbeats, answers and losses between a group's members.

Invariant: exit code 1 means that two members held one partition (I28, I32).
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.world_search import show


def rebalances(
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="The highest group epoch.")] = 3,
    restarts: Annotated[int, typer.Option("--restarts", min=0, help="How often a member starts again.")] = 1,
    partitions: Annotated[int, typer.Option("--partitions", min=1, max=3, help="Partitions that targets move.")] = 3,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search rebalances, the production core deciding: do two members of a group ever hold one partition?"""
    from strandline.sim.rebalances import Bounds, search

    bounds = Bounds(epochs=epochs, restarts=restarts, partitions=partitions)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress))
