"""`strandline topic ...`: create, list, describe, alter and delete topics; other files add more of its commands.

Invariant: only the controller validates names and settings; the command only asks and shows the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask.partitions import REPLICA_COLUMNS, elect, offsets, replica_rows
from strandline.cli.ask.planning import Seen, Yes, carry_out, read_assignment
from strandline.cli.ask.throttle import Force, Limit, Throttle
from strandline.cli.ask.topic_change import add_partitions, configs, delete_records, grow
from strandline.cli.connect import ask, no_topic, over_tls, topics_named
from strandline.cli.failures import confirm
from strandline.cli.options import Bootstrap, Output, Topic, key_values
from strandline.cli.output import Column, Format, console, for_programs, show, show_one
from strandline.core.planning.plan import plan
from strandline.core.planning.values import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.client import Admin, DescribedPartition, DescribedTopic

    Test = Callable[[DescribedPartition], bool]

app = typer.Typer(
    help="Create, list, describe, alter, delete topics; partitions, settings, offsets, elections, old records.",
    no_args_is_help=True,
)

Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting, such as min.insync.replicas=2."),
]

_PARTITION_COLUMNS = [
    Column("topic", "topic"),
    Column("partition", "partition", number=True),
    Column("leader", "leader", number=True),
    Column("leader_epoch", "epoch", number=True),
    Column("replicas", "replicas"),
    Column("isr", "ISR"),
    Column("elr", "ELR"),
    Column("observers", "observers"),
    Column("min_isr", "min ISR", number=True),
]


@app.command()
@over_tls
def create(
    topic: Topic,
    bootstrap: Bootstrap,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="Number of partitions.")] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", help="Number of replicas of each partition.")
    ] = None,
    assignment: Annotated[
        str | None,
        typer.Option(metavar="ID:ID[,...]", help="Node ids of each partition, the preferred leader first: 1:2,2:3."),
    ] = None,
    config: Configs = None,
    output: Output = Format.TABLE,
) -> None:
    """Create a topic."""
    settings = key_values(config or [], "--config")
    placed = read_assignment(assignment)
    if placed and (partitions is not None or replication_factor is not None):
        raise typer.BadParameter("--assignment sets partitions and replicas; leave out the other options")
    created = ask(
        bootstrap,
        lambda admin: admin.create_topic(
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=settings,
            assignments=placed,
        ),
    )
    sentence = f"created {topic}: {created.partitions} partitions, {created.replication_factor} replicas each"
    show_one(created._asdict(), output, sentence)


@app.command("list")
@over_tls
def list_topics(bootstrap: Bootstrap, output: Output = Format.TABLE) -> None:
    """List all topics."""
    image = ask(bootstrap, lambda admin: admin.metadata())
    columns = [
        Column("topic", "topic"),
        Column("partitions", "partitions", number=True),
        Column("replication_factor", "replicas", number=True),
        Column("configs_text", "settings"),
    ]
    show([topic_row(topic) for topic in topics_named(image.topics, None)], columns, output, empty="no topics")


@app.command()
@over_tls
def describe(
    bootstrap: Bootstrap,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="One topic; default: all.")] = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with a replica out of sync.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions that refuse acks=all.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Print one row per replica: LEO, HW, lag and state.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show the partitions of one topic or of all: leader, epoch, replicas, ISR."""
    tests = _filters(under_replicated, under_min_isr, unavailable)
    (_describe_replicas if replicas else _describe)(bootstrap, topic, tests, output)


def _filters(under_replicated: bool, under_min_isr: bool, unavailable: bool) -> list[Test]:
    from strandline.cli.ask import health

    asked = [
        (under_replicated, health.is_under_replicated),
        (under_min_isr, health.is_under_min_isr),
        (unavailable, health.is_unavailable),
    ]
    return [test for wanted, test in asked if wanted]


def _describe(bootstrap: str, name: str | None, tests: list[Test], form: Format) -> None:
    image = ask(bootstrap, lambda admin: admin.metadata())
    topics = topics_named(image.topics, name)
    rows = [
        partition_row(topic.name, partition)
        for topic in topics
        for partition in topic.partitions
        if all(test(partition) for test in tests)
    ]
    if form is Format.TABLE and name is not None and not tests:
        _print_heading(topics[0])
    show(rows, _PARTITION_COLUMNS, form, empty="no such partitions")


def _describe_replicas(bootstrap: str, name: str | None, tests: list[Test], form: Format) -> None:
    async def look(admin: Admin) -> list[dict[str, Any]]:
        topics = topics_named((await admin.metadata()).topics, name)
        names = [] if name is None else [name]
        led, held = await admin.describe_partitions(names), await admin.describe_replicas(names)
        return list(replica_rows(topics, led, held, lambda partition: all(test(partition) for test in tests)))

    rows = ask(bootstrap, look)
    show(rows if form is Format.TABLE else for_programs(rows), REPLICA_COLUMNS, form, empty="no such partitions")


def _print_heading(topic: DescribedTopic) -> None:
    row = topic_row(topic)
    screen = console()
    screen.print(f"[bold]{topic.name}[/]  {row['partitions']} partitions, {row['replication_factor']} replicas")
    screen.print(f"[dim]id {topic.topic_id}  {row['configs_text']}[/]\n")


@app.command()
@over_tls
def alter(
    topic: Topic,
    bootstrap: Bootstrap,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", help="A higher number of partitions.")] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Replicas of each partition; shows a plan, see --yes."),
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="NAME", help="Reset a setting to its default.")
    ] = None,
    throttle: Throttle = None,
    force: Force = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
) -> None:
    """Add partitions to a topic, change its settings, or plan another replication factor."""
    settings = key_values(config or [], "--config")
    if replication_factor is not None:
        if partitions is not None or settings or delete_config:
            raise typer.BadParameter("--replication-factor makes its own plan; leave out the other changes")
        carry_out(
            bootstrap,
            lambda seen: _factor_plan(seen, topic, replication_factor),
            yes=yes,
            form=output,
            limit=Limit(throttle, force),
        )
        return
    if partitions is None and not settings and not delete_config:
        raise typer.BadParameter(
            "nothing to alter: give --partitions, --replication-factor, --config or --delete-config"
        )

    async def change(admin: Admin) -> None:
        if settings or delete_config:
            await admin.alter_topic_configs(topic, settings, delete=delete_config or [])
            typer.echo(f"altered the settings of {topic}")
        if partitions is not None:
            await grow(admin, topic, partitions)

    ask(bootstrap, change)


def _factor_plan(seen: Seen, name: str, factor: int) -> Plan:
    if name not in {each.topic for each in seen.partitions}:
        raise no_topic(name)
    wanted = [replace(each, replication_factor=factor if each.topic == name else None) for each in seen.partitions]
    return plan(seen.nodes, wanted, ())


@app.command()
@over_tls
def delete(
    topic: Topic,
    bootstrap: Bootstrap,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a topic and all its records."""
    if not yes:
        confirm(f"delete topic {topic} and all its records?", f"topic {topic} is not deleted", err=False)
    ask(bootstrap, lambda admin: admin.delete_topic(topic))
    typer.echo(f"deleted {topic}")


app.command("add-partitions")(add_partitions)
app.command("configs")(configs)
app.command("offsets")(offsets)
app.command("elect")(elect)
app.command("delete-records")(delete_records)


def topic_row(topic: DescribedTopic) -> dict[str, Any]:
    """A topic as a row."""
    configs = dict(topic.configs)
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "configs": configs,
        "configs_text": " ".join(f"{name}={value}" for name, value in sorted(configs.items())),
    }


def partition_row(topic: str, partition: DescribedPartition) -> dict[str, Any]:
    """A partition, as the controller committed it, as a row."""
    return {
        "topic": topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "observers": list(partition.observers),
        "min_isr": partition.min_isr,
    }
