"""`strandline analytics explain -t T -p N --at TIME`: what happened to a partition at a moment.

Invariant: several clusters with such a partition are listed and none is chosen; the decision that is explained is the
nearest one, and how far away it was is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from strandline.cli.durations import time_text
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.cli.output import Format, print_document
from strandline_analytics.commands.explain_held import not_one
from strandline_analytics.commands.options import moment_us
from strandline_analytics.commands.progress import spark_session

if TYPE_CHECKING:
    from strandline_analytics.explain.chain import Chain


def explain_moment(
    topic: str,
    partition: int,
    at: str,
    inputs: list[str],
    cluster: str | None,
    memory: str,
    form: Format,
    show_chain: Callable[[Chain], None],
) -> None:
    """Ask and show; ``show_chain`` shows the chain of the nearest decision to people.

    Raises:
        typer.BadParameter: it is no moment.
        typer.Exit: not exactly one cluster has such a partition.
    """
    at_us = moment_us(at, "--at")
    assert at_us is not None, "a moment was given"
    with spark_session(memory, inputs=inputs) as spark:
        from strandline_analytics.explain import ask
        from strandline_analytics.sources.exports import open_exports

        silver = open_exports(spark, inputs, cluster_id=cluster)
        found = ask.around(silver, ask.ExplainedPartition(topic=topic, partition=partition, cluster_id=cluster), at_us)
    name = f"{topic}-{partition}"
    if isinstance(found, list):
        raise fail(CommandFailed(not_one(name, found, see="timeline"), EXIT_REFUSED))
    known, chain = found
    if form is not Format.TABLE:
        answer = {"partition": name, "at": time_text(at_us), "held": known.held, "decisions": list(known.decisions)}
        print_document(answer | {"chain": None if chain is None else asdict(chain)}, form)
        return
    typer.echo(f"{name} at {time_text(at_us)}: {known.held}")
    for said in known.decisions or ["no decision about it was read"]:
        typer.echo(f"- {said}")
    if chain is not None:
        show_chain(chain)
