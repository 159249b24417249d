"""`strandline sim elections`: search every order of crashes, returns and reports around one lost directory.

Invariant: exit code 1 means that an elected leader lacked a committed record, or that nobody was elected although all
had reported.
"""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.world_search import show


def elections(
    records: Annotated[int, typer.Option("--records", min=1, help="Total number of appends.")] = 1,
    epochs: Annotated[int, typer.Option("--epochs", min=0, metavar="E", help="Leader epochs 0..E.")] = 1,
    states: Annotated[int | None, typer.Option("--states", min=1, help="Stop after about this many states.")] = None,
) -> None:
    """Search elections after losses, the production controller deciding: does a leader ever lack what was committed?"""
    from strandline.sim.elections import Bounds, search
    from strandline.sim.elections.world import State

    def shown(step: tuple[str, State]) -> str:
        name, state = step
        logs = " ".join(str(list(replica.log)) for replica in state.replicas)
        return f"{name:70} logs {logs}, committed {list(state.committed)}"

    bounds = Bounds(records, epochs)
    show(bounds, lambda progress: search(bounds, max_states=states, progress=progress), shown)
