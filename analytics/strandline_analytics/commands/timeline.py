"""`strandline analytics timeline`: lists what happened, event by event, in the order in which it was decided.

Invariant: a filter removes events and never reorders them; nothing is cut off without a notice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.durations import time_text
from strandline.cli.output import Column, show
from strandline_analytics.commands.options import Cluster, From, Memory, Shown, ShownAs, To, form_of, window_us
from strandline_analytics.commands.progress import DEFAULT_MEMORY, check_installed, spark_session
from strandline_analytics.commands.remote import MaybeInputs, Service, ask, events_of, one_source, paged, range_of

if TYPE_CHECKING:
    from strandline_analytics.timeline.event import Event, Selection

_COLUMNS = [
    Column("time", "time (UTC)"),
    Column("where", "partition"),
    Column("partition_epoch", "pe", number=True),
    Column("leader_epoch", "epoch", number=True),
    Column("writer", "reported by"),
    Column("sentence", "what"),
    Column("cause", "cause"),
]
_WIDE = [
    *_COLUMNS,
    Column("event_type", "type"),
    Column("event_id", "event id"),
    Column("raw_time", "as written"),
    Column("err_us", "± us", number=True),
]

Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic; repeatable.")]
Partitions = Annotated[list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; repeatable.")]
Nodes = Annotated[
    list[int] | None, typer.Option("--node", "-n", help="Only events written by or about this node; repeatable.")
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type", metavar="EVENT_TYPE", help="Only this event type, including types hidden by default; repeatable."
    ),
]


def timeline(
    inputs: MaybeInputs = None,
    service: Service = "",
    topic: Topics = None,
    partition: Partitions = None,
    node: Nodes = None,
    event_type: Types = None,
    start: From = None,
    end: To = None,
    cluster: Cluster = None,
    moves: Annotated[bool, typer.Option("--hw", help="Also show each advance of the high watermark.")] = False,
    memory: Memory = DEFAULT_MEMORY,
    output: ShownAs = Shown.TABLE,
) -> None:
    """List events in logical order: decisions by partition epoch, a node's events by epoch, incarnation and seq.

    Times are corrected by what the controller measured of each clock. A topic's events come with those of the nodes
    (sessions, settings), which have no partition.
    """
    own = one_source(inputs, service)
    from strandline.export.schema import SAMPLES, dataset_of
    from strandline_analytics.timeline.event import MOVES, Selection

    start_us, end_us = window_us(start, end)
    types = tuple(name.upper() for name in event_type or ())
    sampled = tuple(dict.fromkeys((*(MOVES if moves else ()), *(t for t in types if dataset_of(t) == SAMPLES))))
    selection = Selection(
        topics=tuple(topic or ()),
        partitions=tuple(partition or ()),
        nodes=tuple(node or ()),
        types=types,
        start_us=start_us,
        end_us=end_us,
        sample_types=sampled,
        cluster_id=cluster,
    )
    found = _from_service(service, selection) if service else _computed(own, selection, memory)
    columns = _WIDE if output is Shown.WIDE else _COLUMNS
    form = form_of(output)
    show([event_row(event) for event in found], columns, form, empty="no event matches; see --from, --to, --topic")
    if output in (Shown.TABLE, Shown.WIDE) and (remark := remark_on_clocks(found)):
        typer.echo(remark, err=True)


def remark_on_clocks(found: Sequence[Event]) -> str:
    """The explanation of times that go back in the list, if any do: the order is not that of clocks."""
    back = sum(after.t_us < before.t_us for before, after in itertools.pairwise(found))
    if not back:
        return ""
    rows = "1 row shows" if back == 1 else f"{back:,} rows show"
    return f"strandline: {rows} an earlier time than the row above: the order is that of decisions, not of clocks"


def _from_service(service: str, selection: Selection) -> list[Event]:
    """The events that a service selects.

    Raises:
        typer.BadParameter: a type is not in the contract.
    """
    from strandline.v1 import analytics_service_pb2 as pb, state_event_pb2

    known = state_event_pb2.StateEventType.DESCRIPTOR.values_by_name
    for name in selection.types:
        if f"STATE_EVENT_TYPE_{name}" not in known:
            raise typer.BadParameter(f"--type: {name} is not a type that a service knows; ask the export: --input")
    request = pb.GetTimelineRequest(
        range=range_of(selection.start_us, selection.end_us),
        cluster_id=selection.cluster_id or "",
        topics=selection.topics,
        partitions=selection.partitions,
        nodes=selection.nodes,
        with_hw_advances=bool(set(selection.sample_types) - set(selection.types)),
    )
    request.types.extend(known[f"STATE_EVENT_TYPE_{name}"].number for name in selection.types)  # type: ignore[misc]

    async def asked(stub: Any) -> list[pb.TimelineEvent]:
        return [part.event async for part in paged(stub.GetTimeline, request)]

    return events_of(ask(service, asked))


def _computed(inputs: Sequence[str], selection: Selection, memory: str) -> list[Event]:
    check_installed()
    with spark_session(memory, inputs=inputs) as spark:
        from strandline_analytics.sources.exports import open_exports
        from strandline_analytics.timeline.order import events

        # The first state of the window follows from what came before it; only the end bounds what is read.
        silver = open_exports(
            spark,
            inputs,
            end_us=selection.end_us,
            cluster_id=selection.cluster_id,
            samples=bool(selection.sample_types),
        )
        return events(silver, selection)


def event_row(event: Event) -> dict[str, Any]:
    """An event as a row of output; output for programs has its fields as well."""
    from strandline_analytics.timeline.inferred import with_inferences
    from strandline_analytics.timeline.sentences import writer

    where = "" if event.partition is None else f"{event.topic}-{event.partition}"
    return {
        "time": time_text(event.t_us),
        "where": where,
        "partition_epoch": event.partition_epoch,
        "leader_epoch": event.leader_epoch,
        "writer": writer(event.node_id),
        "sentence": with_inferences(event),
        "cause": event.cause,
        "event_type": event.event_type,
        "event_id": event.event_id,
        "cluster_id": event.cluster_id,
        "topic": event.topic,
        "topic_id": event.topic_id,
        "partition": event.partition,
        "ordinal": event.ordinal,
        "raw_time": time_text(event.raw_us),
        "err_us": event.err_us,
        "fields": _plain(event.fields),
    }


def _plain(value: Any) -> Any:
    """The value, converted to types that JSON and YAML know."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    return value
