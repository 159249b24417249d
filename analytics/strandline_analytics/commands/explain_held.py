"""`strandline analytics explain -t T -p N --lso --at TIME`: why readers of committed records stood still there.

Invariant: several clusters with such a partition are listed and none is chosen; what no event reports is named.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from strandline.cli.durations import time_text
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.cli.output import Format, print_document, show
from strandline_analytics.commands.explain_group import LINKS
from strandline_analytics.commands.options import moment_us
from strandline_analytics.commands.progress import check_installed, spark_session
from strandline_analytics.commands.remote import DEADLINE_S, ask as ask_service, held_back_of

if TYPE_CHECKING:
    from strandline.v1 import analytics_service_pb2 as pb
    from strandline_analytics.explain.stall import HeldBack


def explain_held(
    topic: str, partition: int, at: str | None, source: list[str] | str, cluster: str | None, memory: str, form: Format
) -> None:
    """Ask and show; ``source`` are inputs, or the address of a service.

    Raises:
        typer.BadParameter: no moment was named.
        typer.Exit: not exactly one cluster has such a partition, or the service did not answer.
    """
    at_us = moment_us(at, "--at")
    if at_us is None:
        raise typer.BadParameter("--lso: name the moment with --at, for instance --at 2026-11-21T10:00:00Z")
    if isinstance(source, str):
        found = _served(source, topic, partition, at_us, cluster)
    else:
        found = _computed(source, topic, partition, at_us, cluster, memory)
    if isinstance(found, list):
        raise fail(CommandFailed(not_one(f"{topic}-{partition}", found, see="stats s26"), EXIT_REFUSED))
    _show(found, form)


def _computed(
    inputs: list[str], topic: str, partition: int, at_us: int, cluster: str | None, memory: str
) -> HeldBack | list[str]:
    check_installed()
    from strandline_analytics.explain.ask_held_back import AskedPartition, held_back

    with spark_session(memory, inputs=inputs) as spark:
        from strandline_analytics.sources.exports import open_exports

        silver = open_exports(spark, inputs, cluster_id=cluster)
        return held_back(silver, AskedPartition(topic=topic, partition=partition, at_us=at_us, cluster_id=cluster))


def _served(service: str, topic: str, partition: int, at_us: int, cluster: str | None) -> HeldBack | list[str]:
    from strandline.v1 import analytics_service_pb2 as pb

    request = pb.ExplainHeldBackRequest(topic=topic, partition=partition, cluster_id=cluster or "")
    request.at.FromMicroseconds(at_us)

    async def asked(stub: Any) -> pb.ExplainHeldBackResponse:
        answer: pb.ExplainHeldBackResponse = await stub.ExplainHeldBack(request, timeout=DEADLINE_S)
        return answer

    answer = ask_service(service, asked)
    return held_back_of(answer.held_back) if answer.HasField("held_back") else list(answer.cluster_ids)


def not_one(name: str, clusters: list[str], *, see: str) -> str:
    """Why a partition that is not in exactly one cluster is not explained."""
    if clusters:
        return f"partition {name} is there in several clusters; name one with --cluster: {', '.join(clusters)}"
    return f"no event of a partition {name} was read; see: strandline analytics {see}"


def _show(found: HeldBack, form: Format) -> None:
    links = [asdict(link) | {"time": time_text(link.t_us)} for link in found.links]
    if form is not Format.TABLE:
        lists = {"reasons": list(found.reasons), "links": links, "missing": list(found.missing)}
        print_document(asdict(found) | {"at": time_text(found.at_us)} | lists, form)
        return
    typer.echo(f"readers of committed records of {found.partition} at {time_text(found.at_us)}:")
    for reason in found.reasons:
        typer.echo(f"- {reason}")
    if links:
        show(links, LINKS, Format.TABLE)
    for missing in found.missing:
        typer.echo(f"not known: {missing}")
