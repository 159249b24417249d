"""Shows the stages of Spark while they run: one bar on stderr, and nothing if that is not a terminal.

Invariant: the thread that polls Spark ends with the block that started it.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline_analytics.commands.options import EXIT_INCOMPLETE, existing

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from strandline_analytics.session import Session


_ASK_EVERY_S = 0.2


@contextmanager
def stages_shown(spark: Session, *, wanted: bool = True) -> Iterator[None]:
    """Show the progress of Spark until the block ends."""
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
    """Show the tasks of all running stages."""
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


# ---- analytics_session
# Gives a command its Spark, embedded or prepared by spark-submit, and ends the command if there is none.
#
# Invariant: what is missing (the input, the extra, Java) is named in one line before anything else is tried.

DEFAULT_MEMORY = "2g"
NONE: Mapping[str, str] = MappingProxyType({})


def _imported() -> None:
    """Import the modules that every command needs with its session."""
    import strandline_analytics.sources.exports  # noqa: F401


@contextmanager
def spark_session(
    memory: str = DEFAULT_MEMORY,
    *,
    progress: bool = True,
    inputs: Sequence[str] = (),
    settings: Mapping[str, str] = NONE,
    meanwhile: Callable[[], object] = _imported,
) -> Iterator[Session]:
    """A session for one command, stopped at its end; expected failures end the command with one line.

    Args:
        inputs: all that the command reads, if it ends by itself; for small input other JVM settings are faster.
        settings: further settings of a session of our own; one that spark-submit prepared is used as it is.
        meanwhile: called once while the JVM of a session of our own starts.

    Raises:
        typer.BadParameter: an input of this machine does not exist, which is checked before a JVM starts.
        typer.Exit: something is missing, or the input cannot be used.
    """
    existing(inputs)
    check_installed()
    from strandline_analytics.session import is_little, open_session
    from strandline_analytics.tables.runtimes import not_started

    master = None if is_submitted() else "local[*]"
    with failures_reported():
        try:
            spark = open_session(
                master=master, memory=memory, little=is_little(inputs), settings=settings, meanwhile=meanwhile
            )
        except Exception as error:
            trouble = not_started(settings, error)
            if trouble is None:
                raise
            raise trouble from error
        try:
            with stages_shown(spark, wanted=progress):
                yield spark
        finally:
            spark.stop()


def is_submitted() -> bool:
    """Whether spark-submit prepared the session that this process is to join."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def failures_reported() -> Iterator[None]:
    """End the command with one line on expected failures of Spark and of the input.

    Raises:
        typer.Exit: the input cannot be used.
    """
    from strandline_analytics.sources.trouble import Incomplete, explained

    try:
        yield
    except Exception as error:
        trouble = explained(error)
        if trouble is None:
            raise
        code = EXIT_INCOMPLETE if isinstance(trouble, Incomplete) else EXIT_REFUSED
        raise fail(CommandFailed(str(trouble), code)) from error


def check_installed() -> None:
    """End the command if Spark cannot run.

    Raises:
        ModuleNotFoundError: a library of the extra is missing.
        typer.Exit: Java is missing.
    """
    import strandline_analytics.session  # noqa: F401 - a missing library ends the command (cli/failures.py)

    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        said = "this needs Java 17 or newer (Debian: apt-get install default-jre-headless), or JAVA_HOME"
        raise fail(CommandFailed(said, EXIT_REFUSED))
