"""`strandline analytics explain`: why one change of an ISR or of a leader happened, link by link.

Invariant: where the question fits several decisions, they are listed and none is chosen; what no event tells is named.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.analytics_options import (
    Cluster,
    From,
    Inputs,
    Memory,
    Shown,
    ShownAs,
    To,
    existing,
    time_text,
    window_us,
)
from strandline.cli.analytics_session import DEFAULT_MEMORY, check_installed, spark_session
from strandline.cli.analytics_timeline import event_row
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.cli.output import Column, Format, print_document, show

if TYPE_CHECKING:
    from strandline_analytics.explain.chain import Chain
    from strandline_analytics.timeline.event import Event

_LINKS = [
    Column("time", "time (UTC)"),
    Column("name", "link"),
    Column("who", "told by"),
    Column("told", "what"),
    Column("cause", "cause"),
]
_CANDIDATES = [
    Column("time", "time (UTC)"),
    Column("partition_epoch", "pe", number=True),
    Column("sentence", "what"),
    Column("cause", "cause"),
]


def explain(
    inputs: Inputs,
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic's name.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="The partition.")],
    epoch: Annotated[
        int | None, typer.Option("--partition-epoch", "-e", min=0, help="Of the decision; else --from and --to.")
    ] = None,
    start: From = None,
    end: To = None,
    cluster: Cluster = None,
    memory: Memory = DEFAULT_MEMORY,
    output: ShownAs = Shown.TABLE,
) -> None:
    """Explain one decision about a partition; lists the candidates where several fit."""
    check_installed()
    from strandline_analytics.explain import chain
    from strandline_analytics.timeline.selection import MOVES, Selection

    start_us, end_us = window_us(start, end)
    chosen = Selection(topics=(topic,), partitions=(partition,), sample_types=MOVES, cluster_id=cluster)
    with spark_session(memory) as spark:
        from strandline_analytics.sources.exports import open_exports
        from strandline_analytics.timeline import order
        from strandline_analytics.timeline.event import events_from

        silver = open_exports(spark, existing(inputs), cluster_id=cluster)
        found = events_from([row.asDict(recursive=True) for row in order.timeline(silver, chosen).collect()])
    fitting = [
        event
        for event in chain.candidates(found)
        if (epoch is None or event.partition_epoch == epoch)
        and (start_us is None or event.t_us >= start_us)
        and (end_us is None or event.t_us < end_us)
    ]
    decisions = {(event.key, event.partition_epoch) for event in fitting}
    if len(decisions) != 1:
        _list(fitting, output)
        return
    key, only = decisions.pop()
    of_one = [event for event in found if event.partition is None or event.key == key]
    _show(chain.explain(of_one, only or 0), output)


def _list(fitting: list[Event], output: Shown) -> None:
    """The candidates; none at all is a failure.

    Raises:
        typer.Exit: nothing fits.
    """
    if not fitting:
        raise fail(CommandFailed("no decision fits; see: strandline analytics timeline", EXIT_REFUSED))
    typer.echo("several decisions fit; name one with --partition-epoch:", err=True)
    show([event_row(event) for event in fitting], _CANDIDATES, _form(output))


def _show(found: Chain, output: Shown) -> None:
    links = [asdict(link) | {"time": time_text(link.t_us)} for link in found.links]
    if _form(output) is not Format.TABLE:
        print_document(asdict(found) | {"links": links, "missing": list(found.missing)}, _form(output))
        return
    typer.echo(f"{found.topic}-{found.partition}, partition epoch {found.partition_epoch}: {found.told}")
    show(links, _LINKS, Format.TABLE)
    for missing in found.missing:
        typer.echo(f"not known: {missing}")


def _form(output: Shown) -> Format:
    return Format.TABLE if output is Shown.WIDE else Format(output.value)
