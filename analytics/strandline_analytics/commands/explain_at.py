"""`strandline analytics explain ... --at TIME`: explains why a consumer group stood still at a moment, why readers of
committed records of a partition did (`--lso`), or what happened to a partition.

Invariant: several clusters with such a group or partition are listed and none is chosen; what no event reports is
named. For a partition the nearest decision is explained, with its distance in time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from strandline.cli.durations import time_text
from strandline.cli.failures import EXIT_REFUSED, CommandFailed, fail
from strandline.cli.output import Column, Format, print_document, show
from strandline_analytics.commands.options import moment_us
from strandline_analytics.commands.progress import spark_session
from strandline_analytics.commands.remote import DEADLINE_S, ask as ask_service

if TYPE_CHECKING:
    from strandline_analytics.explain.chain import Chain
    from strandline_analytics.explain.stall import HeldBack
    from strandline_analytics.explain.standstill import Standstill
    from strandline_analytics.silver.tables import Silver

LINKS = [
    Column("time", "time (UTC)"),
    Column("name", "link"),
    Column("who", "reported by"),
    Column("reported", "what"),
    Column("cause", "cause"),
]
"""The columns of the table of an explanation's links."""

_Found = TypeVar("_Found")


def explain_group(
    group_id: str,
    at: str | None,
    source: list[str] | str,
    cluster: str | None,
    memory: str,
    form: Format,
    show_chain: Callable[[Chain], None],
) -> None:
    """Ask and show; ``source``: the inputs, or the address of a service; ``show_chain`` shows the stall of a partition.

    Raises:
        typer.BadParameter: no moment was named.
        typer.Exit: not exactly one cluster has such a group, or the service did not answer.
    """
    at_us = _at_us(at, "--group")

    def served(stub: Any) -> Any:
        from strandline.v1 import analytics_service_pb2 as pb

        request = pb.ExplainGroupRequest(group_id=group_id, cluster_id=cluster or "")
        request.at.FromMicroseconds(at_us)
        return stub.ExplainGroup(request, timeout=DEADLINE_S)

    def computed(silver: Silver) -> Standstill | list[str]:
        from strandline_analytics.explain.ask_group import AskedGroup, standstill

        return standstill(silver, AskedGroup(group_id=group_id, at_us=at_us, cluster_id=cluster))

    if isinstance(source, str):
        from strandline_analytics.service.values import STANDSTILL

        answer = ask_service(source, served)
        found = STANDSTILL.read(answer.standstill) if answer.HasField("standstill") else list(answer.cluster_ids)
    else:
        found = _computed(source, cluster, memory, computed)
    if isinstance(found, list):
        nowhere = f"no event of a group {group_id} was read; see: strandline analytics stats s21"
        raise _not_one(f"group {group_id}", found, nowhere)
    chains = {"stalls": [asdict(chain) for chain in found.stalls]}
    _show(found, f"group {found.group_id}", form, chains)
    if form is Format.TABLE:
        for chain in found.stalls:
            show_chain(chain)


def explain_held(
    topic: str, partition: int, at: str | None, source: list[str] | str, cluster: str | None, memory: str, form: Format
) -> None:
    """Ask and show; ``source`` is the inputs, or the address of a service.

    Raises:
        typer.BadParameter: no moment was named.
        typer.Exit: not exactly one cluster has such a partition, or the service did not answer.
    """
    at_us = _at_us(at, "--lso")

    def served(stub: Any) -> Any:
        from strandline.v1 import analytics_service_pb2 as pb

        request = pb.ExplainHeldBackRequest(topic=topic, partition=partition, cluster_id=cluster or "")
        request.at.FromMicroseconds(at_us)
        return stub.ExplainHeldBack(request, timeout=DEADLINE_S)

    def computed(silver: Silver) -> HeldBack | list[str]:
        from strandline_analytics.explain.ask import AskedPartition, held_back

        return held_back(silver, AskedPartition(topic=topic, partition=partition, at_us=at_us, cluster_id=cluster))

    if isinstance(source, str):
        from strandline_analytics.service.values import HELD_BACK

        answer = ask_service(source, served)
        found = HELD_BACK.read(answer.held_back) if answer.HasField("held_back") else list(answer.cluster_ids)
    else:
        found = _computed(source, cluster, memory, computed)
    if isinstance(found, list):
        raise _no_partition(f"{topic}-{partition}", found, see="stats s26")
    _show(found, f"readers of committed records of {found.partition}", form, {})


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
    """Ask and show; ``show_chain`` shows people the chain of the nearest decision.

    Raises:
        typer.BadParameter: ``at`` is not a valid time.
        typer.Exit: not exactly one cluster has such a partition.
    """
    at_us = _at_us(at, "--at")

    def computed(silver: Silver) -> Any:
        from strandline_analytics.explain import ask

        return ask.around(silver, ask.ExplainedPartition(topic=topic, partition=partition, cluster_id=cluster), at_us)

    found = _computed(inputs, cluster, memory, computed)
    name = f"{topic}-{partition}"
    if isinstance(found, list):
        raise _no_partition(name, found, see="timeline")
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


def _at_us(at: str | None, option: str) -> int:
    at_us = moment_us(at, "--at")
    if at_us is None:
        raise typer.BadParameter(f"{option}: name the moment with --at, for instance --at 2026-11-21T10:00:00Z")
    return at_us


def _computed(inputs: list[str], cluster: str | None, memory: str, ask: Callable[[Silver], _Found]) -> _Found:
    with spark_session(memory, inputs=inputs) as spark:
        from strandline_analytics.sources.exports import open_exports

        return ask(open_exports(spark, inputs, cluster_id=cluster))


def _no_partition(name: str, clusters: list[str], *, see: str) -> typer.Exit:
    nowhere = f"no event of a partition {name} was read; see: strandline analytics {see}"
    return _not_one(f"partition {name}", clusters, nowhere)


def _not_one(what: str, clusters: list[str], nowhere: str) -> typer.Exit:
    """The failure of a question about something that is not in exactly one cluster."""
    several = f"{what} is there in several clusters; name one with --cluster: {', '.join(clusters)}"
    return fail(CommandFailed(several if clusters else nowhere, EXIT_REFUSED))


def _show(found: Standstill | HeldBack, what: str, form: Format, more: dict[str, Any]) -> None:
    links = [asdict(link) | {"time": time_text(link.t_us)} for link in found.links]
    if form is not Format.TABLE:
        lists = {"reasons": list(found.reasons), "links": links, "missing": list(found.missing)}
        print_document(asdict(found) | {"at": time_text(found.at_us)} | more | lists, form)
        return
    typer.echo(f"{what} at {time_text(found.at_us)}:")
    for reason in found.reasons:
        typer.echo(f"- {reason}")
    if links:
        show(links, LINKS, Format.TABLE)
    for missing in found.missing:
        typer.echo(f"not known: {missing}")
