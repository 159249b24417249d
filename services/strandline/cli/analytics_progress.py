"""How the stages of Spark are shown while they run: one bar on stderr, and nothing where that is no terminal.

Invariant: the thread that asks Spark ends with the block that started it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from strandline_analytics.session import Session

_ASK_EVERY_S = 0.2


@contextmanager
def stages_shown(spark: Session, *, wanted: bool = True) -> Iterator[None]:
    """Show how far Spark is until the block ends."""
    if not wanted or not sys.stderr.isatty():
        yield
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from strandline.cli.output import console

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    ended = threading.Event()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("planning", total=None)
        asker = threading.Thread(
            target=_ask, args=(spark.sparkContext.statusTracker(), progress, task, ended), name="stages", daemon=True
        )
        asker.start()
        try:
            yield
        finally:
            ended.set()
            asker.join()


def _ask(tracker: Any, progress: Progress, task: TaskID, ended: threading.Event) -> None:
    while not ended.wait(_ASK_EVERY_S):
        show_stages(tracker, progress, task)


def show_stages(tracker: Any, progress: Progress, task: TaskID) -> None:
    """Show the tasks of all stages that run now."""
    infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
    if not infos:
        progress.update(task, description="planning", total=None)
        return
    names = ", ".join(f"stage {info.stageId}" for info in infos[:3])
    progress.update(
        task,
        description=names,
        completed=sum(info.numCompletedTasks for info in infos),
        total=sum(info.numTasks for info in infos),
    )
