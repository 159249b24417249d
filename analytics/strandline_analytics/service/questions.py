"""Reads a request, and refuses an invalid one.

Invariant: no other code sees a request; the questions that this module returns are complete and in range.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.export.schema import EVENT_TYPES, SAMPLES
from strandline.v1 import analytics_service_pb2 as pb, state_event_pb2
from strandline_analytics.explain.ask import AskedPartition, ExplainedPartition
from strandline_analytics.explain.ask_group import AskedGroup
from strandline_analytics.jobs.ask import Question, chosen
from strandline_analytics.report.gather import STEPS
from strandline_analytics.scope import Grouping
from strandline_analytics.service.settings import MOST_PAGE_ROWS
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.timeline.event import MOVES, Selection

# ---- refusals
# Builds the refusal of a call that cannot be answered: the field, the rule that it breaks, and the remedy.
#
# Invariant: every refusal carries the three apart from its sentence, so that programs need not read the sentence.


def wrong(field: str, rule: str, remedy: str) -> Refused:
    """INVALID_ARGUMENT: a field of the request breaks a rule."""
    return _refused(ErrorCode.INVALID_REQUEST, field, rule, remedy)


def not_found(field: str, rule: str, remedy: str) -> Refused:
    """NOT_FOUND: the request names something that does not exist."""
    return _refused(ErrorCode.RESOURCE_NOT_FOUND, field, rule, remedy)


def full(field: str, rule: str, remedy: str) -> Refused:
    """RESOURCE_EXHAUSTED: a limit of the server is reached; the same call may succeed later."""
    return _refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, field, rule, remedy)


def unusable_input(reported: str) -> Refused:
    """FAILED_PRECONDITION: the exported files cannot be used; ``reported`` says which files, and what to do."""
    return Refused.of(
        Refusal(
            ErrorCode.INVALID_CONFIG,
            reported,
            field="input",
            rule="the server's input is a sound export",
            remedy="do what the message says, or start the server with another --input",
        )
    )


def stopping() -> Refused:
    """UNAVAILABLE: the server cancels its work because it stops."""
    return Refused(ErrorCode.NETWORK_EXCEPTION, "the server stops and gave this up; ask it again once it serves")


def _refused(code: ErrorCode, field: str, rule: str, remedy: str) -> Refused:
    return Refused.of(Refusal(code, f"{field}: {rule}; {remedy}", field=field, rule=rule, remedy=remedy))


def sentence_of(error: Exception) -> str:
    """The text of an error for a caller: a refusal's own sentence, and nothing about the inside of the process."""
    if isinstance(error, Refused):
        return str(error.refusal)
    return f"{ErrorCode.UNKNOWN_SERVER_ERROR.name}: internal failure; the server's log has it at this run's id"


MOST_WINDOWS = 10_000
"""The maximum number of steps of a window."""
MOST_STEPS = 200
"""The maximum number of bars of a small chart."""
MOST_SPEED = 1_000_000.0

_GROUPINGS = {
    pb.GROUPING_UNSPECIFIED: Grouping.PARTITION,
    pb.GROUPING_TOPIC: Grouping.TOPIC,
    pb.GROUPING_CLUSTER: Grouping.CLUSTER,
}
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999, where a Timestamp ends too."""
_MOMENT_REMEDY = "write RFC 3339, such as 2026-11-21T14:00:00Z"


def query_of(request: pb.QueryRequest, inputs: tuple[str, ...]) -> Question:
    """The question of a Query.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    statistics = statistics_of([request.stat], "stat")
    start_us, end_us = window_of(request.range)
    return Question(
        inputs=inputs,
        statistics=statistics,
        start_us=start_us,
        end_us=end_us,
        cluster_id=request.cluster_id or None,
        step_us=_step_of(request.step_us, start_us, end_us),
        grouping=grouping_of(request.grouping),
    )


def run_of(request: pb.SubmitRunRequest, inputs: tuple[str, ...]) -> Question:
    """The question of a SubmitRun.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    start_us, end_us = window_of(request.range)
    return Question(
        inputs=inputs,
        statistics=statistics_of(request.stats, "stats") if request.stats else tuple(ALL.values()),
        start_us=start_us,
        end_us=end_us,
        cluster_id=request.cluster_id or None,
        grouping=grouping_of(request.grouping),
    )


def report_of(request: pb.GetReportRequest, inputs: tuple[str, ...]) -> Question:
    """The question of a GetReport: every statistic over its window and cluster.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    return _whole(request.range, request.cluster_id, inputs)


def coverage_of(request: pb.GetCoverageRequest, inputs: tuple[str, ...]) -> Question:
    """The question of a GetCoverage: its window and cluster, and no statistic.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    return _whole(request.range, request.cluster_id, inputs)


def _whole(window: pb.TimeRange, cluster_id: str, inputs: tuple[str, ...]) -> Question:
    start_us, end_us = window_of(window)
    return Question(
        inputs=inputs,
        statistics=tuple(ALL.values()),
        start_us=start_us,
        end_us=end_us,
        cluster_id=cluster_id or None,
    )


def asked_of(request: pb.ExplainRequest) -> ExplainedPartition:
    """The question of an Explain.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    _check_place(request)
    if request.stall and request.HasField("partition_epoch"):
        raise wrong("partition_epoch", "a stall has none", "narrow a stall down with range")
    start_us, end_us = window_of(request.range)
    return ExplainedPartition(
        topic=request.topic,
        partition=request.partition,
        partition_epoch=request.partition_epoch if request.HasField("partition_epoch") else None,
        start_us=start_us,
        end_us=end_us,
        cluster_id=request.cluster_id or None,
    )


def asked_group_of(request: pb.ExplainGroupRequest) -> AskedGroup:
    """The question of an ExplainGroup.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    if not request.group_id:
        raise wrong("group_id", "a consumer group has a name", "name it")
    if not request.HasField("at"):
        raise wrong("at", "a group stands still at a moment", _MOMENT_REMEDY)
    return AskedGroup(
        group_id=request.group_id, at_us=_moment_us(request.at, "at"), cluster_id=request.cluster_id or None
    )


def asked_held_back_of(request: pb.ExplainHeldBackRequest) -> AskedPartition:
    """The question of an ExplainHeldBack.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    _check_place(request)
    if not request.HasField("at"):
        raise wrong("at", "readers stand still at a moment", _MOMENT_REMEDY)
    return AskedPartition(
        topic=request.topic,
        partition=request.partition,
        at_us=_moment_us(request.at, "at"),
        cluster_id=request.cluster_id or None,
    )


def _check_place(request: pb.ExplainRequest | pb.ExplainHeldBackRequest) -> None:
    if not request.topic:
        raise wrong("topic", "a partition has a topic", "name it")
    if request.partition < 0:
        raise wrong("partition", "it is at least 0", "name a partition of the topic")


def steps_of(request: pb.GetReportRequest) -> int:
    """The number of steps of a report's small charts.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    if not 0 <= request.steps <= MOST_STEPS:
        raise wrong("steps", f"it is from 0 to {MOST_STEPS}", f"leave it out for {STEPS}")
    return request.steps or STEPS


def selection_of(request: pb.GetTimelineRequest) -> Selection:
    """The events that a GetTimeline selects.

    Raises:
        Refused: INVALID_REQUEST with the field.
    """
    if not 0 <= request.speed <= MOST_SPEED:
        raise wrong("speed", f"it is from 0 to {MOST_SPEED:,.0f}", "use 1 for as it happened, 0 for everything at once")
    start_us, end_us = window_of(request.range)
    types = tuple(_event_type(number) for number in request.types)
    named = tuple(name for name in types if EVENT_TYPES[name].dataset == SAMPLES)
    sampled = tuple(dict.fromkeys((*(MOVES if request.with_hw_advances else ()), *named)))
    return Selection(
        topics=tuple(request.topics),
        partitions=tuple(request.partitions),
        nodes=tuple(request.nodes),
        types=types,
        start_us=start_us,
        end_us=end_us,
        cluster_id=request.cluster_id or None,
        sample_types=sampled,
        node_events=not request.without_node_events,
    )


def statistics_of(names: Sequence[str], field: str) -> tuple[Statistic, ...]:
    """The statistics with these names.

    Raises:
        Refused: there is no such statistic.
    """
    try:
        return chosen(names)
    except ValueError as error:
        raise wrong(field, str(error), "call ListStats, which names them all") from error


def window_of(asked: pb.TimeRange) -> tuple[int | None, int | None]:
    """Both ends in microseconds since 1970; None where the request leaves one open.

    Raises:
        Refused: an end is not a valid time, or they are in the wrong order.
    """
    ends: list[int | None] = []
    for name in ("start", "end"):
        if not asked.HasField(name):
            ends.append(None)
            continue
        ends.append(_moment_us(getattr(asked, name), f"range.{name}"))
    start_us, end_us = ends
    if start_us is not None and end_us is not None and end_us <= start_us:
        raise wrong("range.end", "it is after range.start; a window without length has no rows", "exchange them")
    return start_us, end_us


def _moment_us(moment: Timestamp, field: str) -> int:
    """Microseconds since 1970.

    Raises:
        Refused: it is not a valid time.
    """
    if not (0 <= moment.seconds <= _LAST_SECOND and 0 <= moment.nanos < 1_000_000_000):
        raise wrong(field, "it is a moment from 1970 to 9999", _MOMENT_REMEDY)
    return moment.seconds * 1_000_000 + moment.nanos // 1_000


def grouping_of(number: int) -> Grouping:
    """The grouping of the rows.

    Raises:
        Refused: no such grouping.
    """
    found = _GROUPINGS.get(number)  # type: ignore[call-overload]
    if found is None:
        raise wrong(
            "grouping",
            f"{number} is not a grouping",
            "leave it out for partitions, or use GROUPING_TOPIC, GROUPING_CLUSTER",
        )
    return Grouping(found)


def page_size_of(asked: int, otherwise: int) -> int:
    """The maximum number of rows of an answer.

    Raises:
        Refused: it is negative.
    """
    if asked < 0:
        raise wrong("page_size", "it is at least 0", "leave it out for the server's own limit")
    return min(asked or otherwise, MOST_PAGE_ROWS)


def _step_of(step_us: int, start_us: int | None, end_us: int | None) -> int | None:
    if step_us < 0:
        raise wrong("step_us", "it is at least 0", "leave it out for one step as long as the window")
    if step_us and start_us is not None and end_us is not None and (end_us - start_us) // step_us >= MOST_WINDOWS:
        raise wrong("step_us", f"a window has at most {MOST_WINDOWS} steps", "ask for longer steps")
    return step_us or None


def _event_type(number: int) -> str:
    names = state_event_pb2.StateEventType.DESCRIPTOR.values_by_number
    name = names[number].name.removeprefix("STATE_EVENT_TYPE_") if number in names else ""
    if name not in EVENT_TYPES:
        raise wrong("types", f"{number} is not a type of event", "use the names of StateEventType")
    return name
