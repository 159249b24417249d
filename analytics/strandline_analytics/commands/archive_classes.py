"""`strandline analytics archive-classes`: makes the sessions of all later commands start in half the time.

Invariant: an earlier archive is replaced only by a whole one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.units import bytes_text
from strandline_analytics.commands.options import Inputs, Memory, existing
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, failures_reported

if TYPE_CHECKING:
    from strandline_analytics.session import Session


def archive_classes(inputs: Inputs, memory: Memory = DEFAULT_MEMORY) -> None:
    """Compute all statistics of an export once, and keep the classes that Spark has read for it: some 190 MB.

    The archive lies in the cache of this user ($XDG_CACHE_HOME/strandline), belongs to this Java and this PySpark, and
    is used by every command that starts a Spark of its own. Making it again replaces it.
    """
    check_installed()
    existing(inputs)
    from strandline_analytics.jvm_start import NoArchive, make_archive
    from strandline_analytics.session import open_session

    def open_one(jvm: tuple[str, ...]) -> Session:
        return open_session(master="local[*]", memory=memory, jvm=jvm)

    typer.echo("all statistics are computed once, and the JVM writes at its end: a minute or two", err=True)
    with failures_reported():
        try:
            path = make_archive(open_one, lambda spark: _use(spark, inputs))
        except (NoArchive, OSError) as error:
            raise fail(CommandFailed(f"no archive was made: {error}", EXIT_REFUSED)) from error
    typer.echo(f"{path}: {bytes_text(path.stat().st_size)}")


def _use(spark: Session, inputs: list[str]) -> None:
    """Do the work of commands: compute everything that a report shows."""
    from strandline_analytics.report.gather import gather
    from strandline_analytics.sources.exports import open_exports

    gather(open_exports(spark, inputs), inputs)
