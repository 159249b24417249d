"""Converts rows of Spark and moments into messages.

Invariant: a null is left out, never sent as 0; the kind of a value is that of its column, whatever its Python type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from strandline.export.schema import COLUMNS, ColumnType
from strandline.rpc.convert.by_name import As, ByName
from strandline.v1 import analytics_service_pb2 as pb, state_event_pb2
from strandline_analytics.explain.chain import CauseLink, Chain
from strandline_analytics.explain.stall import HeldBack
from strandline_analytics.explain.standstill import Standstill
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.scope import HOUR_US, Grouping, Scope
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.timeline.event import Event, Stall
from strandline_analytics.timeline.inferred import with_inferences

_COMMON: dict[str, tuple[str, str, str]] = {
    "stat": ("string", "", "id of the statistic"),
    "cluster_id": ("string", "", "id of the cluster"),
    "topic_id": ("string", "", "id of the topic, which is the key; names are used again"),
    "topic": ("string", "", "name of the topic"),
    "partition": ("int", "", "index of the partition"),
    "window_start": ("bigint", "us", "first moment of the window, since 1970"),
    "window_end": ("bigint", "us", "the moment before which the window ends, since 1970"),
    "coverage": ("double", "", "share of the window in which the state is known, 0 to 1"),
    "n_zombie": ("bigint", "", "samples of leaders whose term was over; left out"),
    "n_duplicate": ("bigint", "", "further copies of events; left out"),
    "n_gap": ("bigint", "", "transitions that are missing"),
    "clock_regressions": ("bigint", "", "events whose time was before that of their predecessor; corrected"),
    "input_manifest_hash": ("string", "", "names the files that were read"),
    "code_version": ("string", "", "version of the program that computed it"),
}
"""Type, unit and meaning of the columns that every result has."""

LINK = ByName(CauseLink, pb.ExplainedLink, t_us="time_us")
_LINKS = As("links", LINK.write_all, LINK.read_all)
CHAIN = ByName(Chain, pb.Explanation, topic=As("topic", None, str), partition=As("partition", None, int), links=_LINKS)
STANDSTILL = ByName(Standstill, pb.GroupStandstill, links=_LINKS, stalls=As("stalls", CHAIN.write_all, CHAIN.read_all))
HELD_BACK = ByName(HeldBack, pb.LsoHeldBack, links=_LINKS)
STALL = ByName(Stall, pb.HwStall, t0="start_us", t1="end_us", is_under_min="under_min")
HOUR = ByName(
    HourCoverage,
    pb.HourCoverage,
    hour=As("hour", lambda hour: moment(hour * HOUR_US), lambda at: at.ToMicroseconds() // HOUR_US),
    unknown_types=As("unknown_types", sorted, set),
    unproven=As("unproven_nodes", sorted, set),
    restarted=As("restarted_nodes", sorted, set),
    is_past_grace=None,
)

_LISTS = (ColumnType.INTS, ColumnType.STRINGS, ColumnType.MEMBERS, ColumnType.STRINGS_BY_NAME, ColumnType.LONGS_BY_NAME)


def columns_of(statistic: Statistic, grouping: Grouping) -> list[pb.StatColumn]:
    """The declared columns of a result, in order."""
    declared = dict(_COMMON)
    declared |= {value.name: (value.type, value.unit, value.meaning) for value in (*statistic.extra, *statistic.values)}
    if statistic.only_cluster:
        grouping = Grouping.CLUSTER
    names = statistic.columns(Scope(start_us=0, end_us=1, grouping=grouping))
    reported = ((name, *declared.get(name, ("string", "", ""))) for name in names)
    return [pb.StatColumn(name=name, type=kind, unit=unit, meaning=meaning) for name, kind, unit, meaning in reported]


def description(statistic: Statistic) -> pb.StatDescription:
    """A statistic as ListStats returns it."""
    return pb.StatDescription(
        id=statistic.id,
        name=statistic.name,
        title=statistic.title,
        columns=columns_of(statistic, Grouping.PARTITION),
        reads_samples=statistic.reads_samples,
        only_cluster=statistic.only_cluster,
    )


def row_of(values: Mapping[str, Any], columns: list[pb.StatColumn]) -> pb.Row:
    """A row of a result; ``values`` by column."""
    row = pb.Row()
    for column in columns:
        value = values.get(column.name)
        if value is not None:
            _set(row.values[column.name], column.type, value)
    return row


def _set(target: pb.Value, kind: str, value: Any) -> None:
    if kind.startswith("map<"):
        target.int64_map.values.update({str(name): int(number) for name, number in value.items()})
    elif kind == "array<string>":
        target.string_list.values.extend(value)
    elif kind.startswith("array<"):
        target.int64_list.values.extend(value)
    elif kind == "double":
        target.double_value = float(value)
    elif kind == "boolean":
        target.bool_value = value
    elif kind == "string":
        target.string_value = value
    else:
        target.int64_value = int(value)


def moment(us: int) -> Timestamp:
    """Microseconds since 1970 as a Timestamp."""
    return Timestamp(seconds=us // 1_000_000, nanos=us % 1_000_000 * 1_000)


def state_event(row: Mapping[str, Any]) -> state_event_pb2.StateEvent:
    """An exported row as a message; a type that is not in the contract stays unspecified, with its name in ``ext``."""
    event = state_event_pb2.StateEvent()
    for column in COLUMNS:
        value = row.get(column.name)
        if value is None:
            continue
        if column.name == "event_type":
            known = state_event_pb2.StateEventType.DESCRIPTOR.values_by_name.get(f"STATE_EVENT_TYPE_{value}")
            if known is None:
                event.ext["event_type"] = value
            else:
                event.event_type = known.number  # type: ignore[assignment]
        elif column.kind in (ColumnType.INTS, ColumnType.STRINGS):
            getattr(event, column.name).extend(value)
        elif column.kind is ColumnType.MEMBERS:
            members = getattr(event, column.name)
            for member in value:
                members.add(**{name: reported for name, reported in member.items() if reported is not None})
        elif column.kind in (ColumnType.STRINGS_BY_NAME, ColumnType.LONGS_BY_NAME):
            getattr(event, column.name).update(value)
        else:
            setattr(event, column.name, value)
    return event


def timeline_event(row: Mapping[str, Any], reported: str) -> pb.TimelineEvent:
    """A row of a timeline, with its sentence."""
    empty = [column.name for column in COLUMNS if column.kind in _LISTS and row.get(column.name) in ([], {})]
    return pb.TimelineEvent(
        ordinal=row["ordinal"],
        time=moment(row["t"]),
        clock_err_us=row["clock_err_us"],
        sentence=reported,
        event=state_event(row),
        empty_fields=empty,
        anchor_epoch=row["anchor_epoch"],
    )


# ---- explanations
# Converts explanations and their candidates into messages.
#
# Invariant: exactly one matching decision, stall, group or partition gives an explanation and no candidates.


def of_decision(found: Chain | Sequence[Event]) -> pb.ExplainResponse:
    """The answer about a decision."""
    if isinstance(found, Chain):
        return pb.ExplainResponse(explanation=CHAIN.write(found))
    return pb.ExplainResponse(decisions=[_candidate(event) for event in found])


def of_stall(found: Chain | Sequence[Stall]) -> pb.ExplainResponse:
    """The answer about a stall of the high watermark."""
    if isinstance(found, Chain):
        return pb.ExplainResponse(explanation=CHAIN.write(found))
    return pb.ExplainResponse(stalls=STALL.write_all(found))


def of_group(found: Standstill | Sequence[str]) -> pb.ExplainGroupResponse:
    """The answer about a consumer group; if several clusters have it, the list of them."""
    if not isinstance(found, Standstill):
        return pb.ExplainGroupResponse(cluster_ids=found)
    return pb.ExplainGroupResponse(standstill=STANDSTILL.write(found))


def of_held_back(found: HeldBack | Sequence[str]) -> pb.ExplainHeldBackResponse:
    """The answer about what held back the LSO of a partition; if several clusters have it, the list of them."""
    if not isinstance(found, HeldBack):
        return pb.ExplainHeldBackResponse(cluster_ids=found)
    return pb.ExplainHeldBackResponse(held_back=HELD_BACK.write(found))


def _candidate(event: Event) -> pb.TimelineEvent:
    row = {
        "cluster_id": event.cluster_id,
        "event_type": event.event_type,
        "node_id": event.node_id,
        "incarnation": event.incarnation,
        "seq": event.seq,
        "ts_wall_us": event.raw_us,
        "topic": event.topic,
        "topic_id": event.topic_id,
        "partition": event.partition,
        "leader_epoch": event.leader_epoch,
        "partition_epoch": event.partition_epoch,
        "t": event.t_us,
        "clock_err_us": event.err_us,
        "ordinal": event.ordinal,
        "anchor_epoch": None,
    }
    return timeline_event(row | dict(event.fields), with_inferences(event))
