"""How a command gets its Spark: embedded, or the one that spark-submit prepared; and how it ends when there is none.

Invariant: what is missing (the input, the extra, Java) is named in one line before anything else is tried.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from strandline.cli.analytics_options import EXIT_INCOMPLETE, existing
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail

if TYPE_CHECKING:
    from strandline_analytics.session import Session

DEFAULT_MEMORY = "2g"
NONE: Mapping[str, str] = MappingProxyType({})


def _imported() -> None:
    """Import what every command does with its session."""
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
        inputs: all that the command reads, if it ends by itself; over little of it another JVM is faster.
        settings: what a session of our own needs besides; one that spark-submit prepared is used as it is.
        meanwhile: called once while the JVM of a session of our own starts.

    Raises:
        typer.BadParameter: an input of this machine is not there, which is seen before a JVM starts.
        typer.Exit: something is missing, or the input cannot be used.
    """
    existing(inputs)
    check_installed()
    from strandline.cli.analytics_progress import stages_shown
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
    """Expected failures of Spark and of the input end the command with one line.

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
    """End the command where Spark cannot run.

    Raises:
        ModuleNotFoundError: a library of the extra is missing.
        typer.Exit: Java is missing.
    """
    import strandline_analytics.session  # noqa: F401 - a missing library ends the command (cli/extras.py)

    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        said = "this needs Java 17 or newer (Debian: apt-get install default-jre-headless), or JAVA_HOME"
        raise fail(CommandFailed(said, EXIT_REFUSED))
