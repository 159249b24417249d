"""`strandline analytics explain`: explains why an ISR or a leader changed, or why the high watermark,
readers of committed records or a group stood still.

Invariant: if several answers fit the question, they are listed and none is chosen; what no event reports is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.durations import FORMS, time_text
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.cli.output import Column, Format, print_document, show
from strandline_analytics.commands import remote
from strandline_analytics.commands.explain_at import LINKS, explain_group, explain_held, explain_moment
from strandline_analytics.commands.options import Cluster, From, Memory, Shown, ShownAs, To, form_of, window_us
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, spark_session
from strandline_analytics.commands.remote import ask as ask_service
from strandline_analytics.commands.timeline import event_row

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.explain.chain import Chain
    from strandline_analytics.timeline.event import Event, Stall

_CANDIDATES = [
    Column("time", "time (UTC)"),
    Column("partition_epoch", "pe", number=True),
    Column("sentence", "what"),
    Column("cause", "cause"),
]
_STALLS = [
    Column("time", "time (UTC)"),
    Column("ms", "ms", number=True),
    Column("hw", "HW", number=True),
    Column("held_up_by", "held up by"),
    Column("ended_by", "ended by"),
]


Epoch = Annotated[
    int | None, typer.Option("--partition-epoch", "-e", min=0, help="The decision's epoch; default: --from and --to.")
]
AboutStall = Annotated[
    bool, typer.Option("--stall", help="Explain why the high watermark stalled, instead of a decision.")
]
Lso = Annotated[
    bool,
    typer.Option("--lso", help="Explain why readers of committed records stood still in the partition, see --at."),
]
Group = Annotated[
    str, typer.Option("--group", metavar="GROUP", help="Explain why this consumer group stood still, see --at.")
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help=f"What happened then to the partition, or to --group or --lso: {FORMS}."),
]


def explain(
    topic: Annotated[str, typer.Option("--topic", "-t", help="The topic's name.")] = "",
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="The partition.")] = None,
    inputs: remote.MaybeInputs = None,
    service: remote.Service = "",
    epoch: Epoch = None,
    stall: AboutStall = False,
    lso: Lso = False,
    group: Group = "",
    at: At = None,
    start: From = None,
    end: To = None,
    cluster: Cluster = None,
    memory: Memory = DEFAULT_MEMORY,
    output: ShownAs = Shown.TABLE,
) -> None:
    """Explain one decision about a partition, what happened to it at a moment, one stall, who held an LSO back, or a
    group's standstill; list candidates if several match."""
    own = remote.one_source(inputs, service)
    if group:
        _refuse_beside_group(
            {"--topic": topic, "--partition": partition, "--partition-epoch": epoch, "--stall": stall or None,
             "--lso": lso or None, "--from": start, "--to": end}
        )  # fmt: skip
        explain_group(group, at, own or service, cluster, memory, form_of(output), lambda chain: _show(chain, output))
        return
    if not topic or partition is None:
        raise typer.BadParameter("name a partition with --topic and --partition, or a consumer group with --group")
    if lso:
        if stall or epoch is not None or start or end:
            raise typer.BadParameter("--lso: takes --at, and none of --stall, -e, --from and --to")
        explain_held(topic, partition, at, own or service, cluster, memory, form_of(output))
        return
    if at is not None:
        if stall or epoch is not None or start or end or service:
            raise typer.BadParameter("--at: takes --input, and none of --stall, -e, --from, --to and --service")
        explain_moment(topic, partition, at, own, cluster, memory, form_of(output), lambda chain: _show(chain, output))
        return
    if stall and epoch is not None:
        raise typer.BadParameter("--stall: a stall has no --partition-epoch; narrow it down with --from and --to")
    start_us, end_us = window_us(start, end)
    if service:
        answer = _asked_of(service, topic, partition, epoch, stall, remote.range_of(start_us, end_us), cluster)
        _tell_answer(answer, output, stall)
        return
    check_installed()
    from strandline_analytics.explain import ask

    asked = ask.ExplainedPartition(
        topic=topic, partition=partition, partition_epoch=epoch, start_us=start_us, end_us=end_us, cluster_id=cluster
    )
    with spark_session(memory, inputs=own) as spark:
        from strandline_analytics.sources.exports import open_exports

        silver = open_exports(spark, own, cluster_id=cluster)
        if stall:
            _tell_stall(ask.stall(silver, asked), output)
        else:
            _tell_decision(ask.decision(silver, asked), output)


def _refuse_beside_group(given: Mapping[str, object]) -> None:
    """Refuse options of partitions in a question about a group.

    Raises:
        typer.BadParameter: one of them was given.
    """
    for option, value in given.items():
        if value not in (None, ""):
            raise typer.BadParameter(f"{option}: a group is asked about with --at; leave {option} out")


def _asked_of(
    service: str,
    topic: str,
    partition: int,
    epoch: int | None,
    stall: bool,
    window: pb.TimeRange,
    cluster: str | None,
) -> pb.ExplainResponse:
    from strandline.v1 import analytics_service_pb2 as pb

    request = pb.ExplainRequest(
        topic=topic,
        partition=partition,
        partition_epoch=epoch,
        stall=stall,
        range=window,
        cluster_id=cluster or "",
    )
    answer: pb.ExplainResponse = ask_service(service, lambda stub: stub.Explain(request, timeout=remote.DEADLINE_S))
    return answer


def _tell_answer(answer: pb.ExplainResponse, output: Shown, stall: bool) -> None:
    from strandline_analytics.service.values import CHAIN, STALL

    if not answer.HasField("explanation"):
        if stall:
            _tell_stall(list(STALL.read_all(answer.stalls)), output)
        else:
            _tell_decision(remote.events_of(answer.decisions), output)
        return
    _show(CHAIN.read(answer.explanation), output)


def _tell_decision(found: Chain | list[Event], output: Shown) -> None:
    if isinstance(found, list):
        _list([event_row(event) for event in found], _CANDIDATES, output, what="decision", narrow="--partition-epoch")
    else:
        _show(found, output)


def _tell_stall(found: Chain | list[Stall], output: Shown) -> None:
    if isinstance(found, list):
        _list([_stall_row(each) for each in found], _STALLS, output, what="stall", narrow="--from and --to")
    else:
        _show(found, output)


def _stall_row(stall: Stall) -> dict[str, object]:
    blamed = "min ISR" if stall.is_under_min else ", ".join(map(str, stall.blockers))
    return {
        "time": time_text(stall.t0),
        "ms": (stall.t1 - stall.t0) // 1000,
        "hw": stall.hw,
        "held_up_by": blamed,
        "ended_by": stall.ended_by,
    }


def _list(rows: list[dict[str, object]], columns: list[Column], output: Shown, *, what: str, narrow: str) -> None:
    """Print the candidates; it is a failure if there are none.

    Raises:
        typer.Exit: nothing fits.
    """
    if not rows:
        raise fail(CommandFailed(f"no {what} fits; see: strandline analytics timeline", EXIT_REFUSED))
    typer.echo(f"several {what}s fit; name one with {narrow}:", err=True)
    show(rows, columns, form_of(output))


def _show(found: Chain, output: Shown) -> None:
    from strandline.export.schema import INFERRED

    links = [asdict(link) | {"time": time_text(link.t_us)} for link in found.links]
    if form_of(output) is not Format.TABLE:
        lists = {"links": links, "missing": list(found.missing), "cost": list(found.cost)}
        print_document(asdict(found) | lists, form_of(output))
        return
    epoch = "" if found.partition_epoch is None else f", partition epoch {found.partition_epoch}"
    typer.echo(f"{found.topic}-{found.partition}{epoch}: {found.reported}")
    show([link for link in links if link["name"] != INFERRED], LINKS, Format.TABLE)
    for link in found.links:
        if link.name == INFERRED:
            typer.echo(link.reported)
    for cost in found.cost:
        typer.echo(f"cost: {cost}")
    for missing in found.missing:
        typer.echo(f"not known: {missing}")
