"""`strandline analytics explain --group G --at TIME`: why a consumer group stood still at a moment.

Invariant: several clusters with such a group are listed and none is chosen; what no event reports is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from strandline.cli.durations import time_text
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.cli.output import Column, Format, print_document, show
from strandline_analytics.commands.options import moment_us
from strandline_analytics.commands.progress import check_installed, spark_session
from strandline_analytics.commands.remote import DEADLINE_S, ask as ask_service, standstill_of

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.explain.chain import Chain
    from strandline_analytics.explain.standstill import Standstill

LINKS = [
    Column("time", "time (UTC)"),
    Column("name", "link"),
    Column("who", "reported by"),
    Column("reported", "what"),
    Column("cause", "cause"),
]
"""The links of an explanation, as a table."""


def explain_group(
    group_id: str,
    at: str | None,
    source: list[str] | str,
    cluster: str | None,
    memory: str,
    form: Format,
    show_chain: Callable[[Chain], None],
) -> None:
    """Ask and show; ``source`` are inputs, or the address of a service; ``show_chain`` shows the stall of a partition.

    Raises:
        typer.BadParameter: no moment was named.
        typer.Exit: not exactly one cluster has such a group, or the service did not answer.
    """
    at_us = moment_us(at, "--at")
    if at_us is None:
        raise typer.BadParameter("--group: name the moment with --at, for instance --at 2026-11-21T10:00:00Z")
    if isinstance(source, str):
        found = _served(source, group_id, at_us, cluster)
    else:
        found = _computed(source, group_id, at_us, cluster, memory)
    if isinstance(found, list):
        raise fail(CommandFailed(_not_one(group_id, found), EXIT_REFUSED))
    _show(found, form, show_chain)


def _computed(inputs: list[str], group_id: str, at_us: int, cluster: str | None, memory: str) -> Standstill | list[str]:
    check_installed()
    from strandline_analytics.explain.ask_group import AskedGroup, standstill

    with spark_session(memory, inputs=inputs) as spark:
        from strandline_analytics.sources.exports import open_exports

        silver = open_exports(spark, inputs, cluster_id=cluster)
        return standstill(silver, AskedGroup(group_id=group_id, at_us=at_us, cluster_id=cluster))


def _served(service: str, group_id: str, at_us: int, cluster: str | None) -> Standstill | list[str]:
    from strandline.v1 import analytics_service_pb2 as pb

    request = pb.ExplainGroupRequest(group_id=group_id, cluster_id=cluster or "")
    request.at.FromMicroseconds(at_us)

    async def asked(stub: Any) -> pb.ExplainGroupResponse:
        answer: pb.ExplainGroupResponse = await stub.ExplainGroup(request, timeout=DEADLINE_S)
        return answer

    answer = ask_service(service, asked)
    return standstill_of(answer.standstill) if answer.HasField("standstill") else list(answer.cluster_ids)


def _not_one(group_id: str, clusters: list[str]) -> str:
    if clusters:
        return f"group {group_id} is there in several clusters; name one with --cluster: {', '.join(clusters)}"
    return f"no event of a group {group_id} was read; see: strandline analytics stats s21"


def _show(found: Standstill, form: Format, show_chain: Callable[[Chain], None]) -> None:
    links = [asdict(link) | {"time": time_text(link.t_us)} for link in found.links]
    if form is not Format.TABLE:
        lists = {"reasons": list(found.reasons), "links": links, "missing": list(found.missing)}
        chains = [asdict(chain) for chain in found.stalls]
        print_document(asdict(found) | {"at": time_text(found.at_us), "stalls": chains} | lists, form)
        return
    typer.echo(f"group {found.group_id} at {time_text(found.at_us)}:")
    for reason in found.reasons:
        typer.echo(f"- {reason}")
    if links:
        show(links, LINKS, Format.TABLE)
    for missing in found.missing:
        typer.echo(f"not known: {missing}")
    for chain in found.stalls:
        show_chain(chain)
