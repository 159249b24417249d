"""Lets a command ask a running `strandline analytics serve` (`--service`) in place of a Spark of its own.

Invariant: an answer equals what the command itself computes over the same files; a service that cannot answer ends
the command with one line that names its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from strandline.cli.connect import tls_options
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, fail

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.jobs.ask import Question
    from strandline_analytics.jobs.coverage import HourCoverage
    from strandline_analytics.timeline.event import Event


Service = Annotated[
    str,
    typer.Option(
        "--service",
        metavar="HOST:PORT",
        help="Query this `strandline analytics serve` instead of starting Spark.",
    ),
]
MaybeInputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="DIR|URI", help="The export_dir or export_uri of services; repeatable."),
]

DEADLINE_S = 300.0
"""The deadline of a call; a first question over a large export takes minutes, as it does without a service."""

_Answer = TypeVar("_Answer")


def one_source(inputs: Sequence[str] | None, service: str) -> list[str]:
    """The inputs; empty if a service is asked.

    Raises:
        typer.BadParameter: neither or both are given.
    """
    if service and inputs:
        raise typer.BadParameter("--input: a service has its own input; give --input or --service, not both")
    if not service and not inputs:
        raise typer.BadParameter("--input: give the directory that services have as export_dir, or a URI, or --service")
    return list(inputs or ())


def ask(service: str, question: Callable[[Any], Awaitable[_Answer]]) -> _Answer:
    """The service's answer to ``question``, which gets a stub of the service.

    Raises:
        typer.BadParameter: the address is not valid.
        typer.Exit: no service answers there, or the question is refused.
    """
    import grpc

    from strandline.client.token import NoToken
    from strandline.rpc.channels import parse_endpoint
    from strandline.rpc.tls import TlsWrong

    try:
        endpoint = parse_endpoint(service)
    except ValueError as error:
        raise typer.BadParameter(f"--service: {error}") from None
    try:
        return asyncio.run(_asked(endpoint, question))
    except (TlsWrong, NoToken) as error:
        raise fail(CommandFailed(str(error), EXIT_UNREACHABLE)) from error
    except grpc.aio.AioRpcError as error:
        raise fail(_failure(service, error)) from error


async def _asked(endpoint: Any, question: Callable[[Any], Awaitable[_Answer]]) -> _Answer:
    from strandline.client.token import Token
    from strandline.rpc.channels import open_channel
    from strandline.rpc.tls import open_tls
    from strandline.v1 import analytics_service_pb2_grpc as pb_grpc

    given = tls_options()
    files = given["tls_cert"], given["tls_key"], given["tls_ca"]
    token = Token(given["token"]) if "token" in given else None
    async with AsyncExitStack() as stack:
        if token is not None:
            await token.renew()
            stack.callback(asyncio.create_task(token.keep_forever()).cancel)
        tls = open_tls(*files) if token is None else token.tls(*files)
        channel = await stack.enter_async_context(open_channel(endpoint, tls=tls))
        return await question(pb_grpc.AnalyticsServiceStub(channel))


def _failure(service: str, error: Any) -> CommandFailed:
    from strandline.rpc.status import refusal_of

    name = error.code().name
    if name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
        return CommandFailed(
            f"no answer from {service} ({name}): {error.details()}; check --service, that `strandline analytics serve` "
            "runs there, and whether it wants --tls-cert",
            EXIT_UNREACHABLE,
        )
    if name == "UNIMPLEMENTED":
        return CommandFailed(
            f"--service: {service} does not serve this question ({error.details()}); give the address that "
            "`strandline analytics serve` of this version prints",
            EXIT_UNREACHABLE,
        )
    return CommandFailed(f"{service} refused: {refusal_of(error)}", EXIT_REFUSED)


def range_of(start_us: int | None, end_us: int | None) -> pb.TimeRange:
    """A window as a message of the contract."""
    from strandline.v1 import analytics_service_pb2 as pb

    asked = pb.TimeRange()
    if start_us is not None:
        asked.start.FromMicroseconds(start_us)
    if end_us is not None:
        asked.end.FromMicroseconds(end_us)
    return asked


async def paged(method: Callable[..., Any], request: Any) -> AsyncIterator[Any]:
    """The parts of an answer without the end parts, page by page."""
    while True:
        token = ""
        async for part in method(request, timeout=DEADLINE_S):
            if part.WhichOneof("part") == "end":
                token = part.end.next_page_token
            else:
                yield part
        if not token:
            return
        request.page_token = token


def answers_of(service: str, question: Question) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """The rows of each statistic of a question, and remarks on the input."""
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.scope import Grouping

    groupings = {Grouping.TOPIC: pb.GROUPING_TOPIC, Grouping.CLUSTER: pb.GROUPING_CLUSTER}

    async def all_of_them(stub: Any) -> tuple[list[list[dict[str, Any]]], list[str]]:
        notes: dict[str, None] = {}
        answers = []
        for statistic in question.statistics:
            request = pb.QueryRequest(
                stat=statistic.id,
                range=range_of(question.start_us, question.end_us),
                step_us=question.step_us or 0,
                grouping=groupings.get(question.grouping, pb.GROUPING_UNSPECIFIED),
                cluster_id=question.cluster_id or "",
                with_samples=question.reads_samples,
            )
            rows: list[dict[str, Any]] = []
            columns: Sequence[pb.StatColumn] = ()
            async for part in paged(stub.Query, request):
                if part.WhichOneof("part") == "header":
                    columns = part.header.columns
                    notes |= dict.fromkeys(part.header.notes)
                else:
                    rows.append({column.name: _value(part.row, column) for column in columns})
            answers.append(rows)
        return answers, list(notes)

    return ask(service, all_of_them)


def _value(row: pb.Row, column: pb.StatColumn) -> Any:
    if column.name not in row.values:
        return None
    value = row.values[column.name]
    kind = value.WhichOneof("kind")
    if kind in ("int64_list", "string_list"):
        return list(getattr(value, kind).values)
    if kind == "int64_map":
        by_number = column.type.startswith(("map<int", "map<bigint"))
        named = sorted((int(name) if by_number else name, number) for name, number in value.int64_map.values.items())
        return dict(named)
    return None if kind is None else getattr(value, kind)


def events_of(sent: Iterable[pb.TimelineEvent]) -> list[Event]:
    """Events in the form of a locally computed timeline."""
    from strandline_analytics.timeline.event import events_from

    return events_from([_row(one) for one in sent])


def _row(one: pb.TimelineEvent) -> Mapping[str, Any]:
    from strandline.export.schema import COLUMNS

    row = {column.name: _field(one.event, column.name, one.empty_fields) for column in COLUMNS}
    row["event_type"] = _type_of(one.event)
    return row | {
        "t": one.time.ToMicroseconds(),
        "clock_err_us": one.clock_err_us if one.HasField("clock_err_us") else None,
        "ordinal": one.ordinal,
        "anchor_epoch": one.anchor_epoch if one.HasField("anchor_epoch") else None,
        "plane": "data",
    }


def _field(message: Any, name: str, empty: Sequence[str] = ()) -> Any:
    """A field's value in the form that rows have; None if it is absent."""
    field = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict(value) if value or name in empty else None
    if not field.is_repeated:
        return value if not field.has_presence or message.HasField(name) else None
    if field.message_type is None:
        return list(value) if value or name in empty else None
    members = [{own.name: _field(member, own.name) for own in member.DESCRIPTOR.fields} for member in value]
    return members if members or name in empty else None


def _type_of(event: Any) -> str:
    if not event.event_type:
        # A type that is not in the contract.
        return str(event.ext.get("event_type", ""))
    field = event.DESCRIPTOR.fields_by_name["event_type"]
    return str(field.enum_type.values_by_number[event.event_type].name.removeprefix("STATE_EVENT_TYPE_"))


def hours_of(answer: pb.GetCoverageResponse) -> list[HourCoverage]:
    """The hours of a coverage, with the attributes that `require` needs."""
    from strandline_analytics.jobs.coverage import HourState
    from strandline_analytics.service.values import HOUR

    return [HOUR.read(hour, is_past_grace=hour.state != HourState.OPEN) for hour in answer.hours]


def coverage_of(service: str, start_us: int | None, end_us: int | None, cluster: str | None) -> pb.GetCoverageResponse:
    """How complete the hours of a window are."""
    from strandline.v1 import analytics_service_pb2 as pb

    request = pb.GetCoverageRequest(range=range_of(start_us, end_us), cluster_id=cluster or "")
    answer: pb.GetCoverageResponse = ask(service, lambda stub: stub.GetCoverage(request, timeout=DEADLINE_S))
    return answer
