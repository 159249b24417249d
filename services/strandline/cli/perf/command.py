"""`strandline perf ...`: what a cluster does under a bounded load of one client, from this machine.

Invariant: the counts are exact, and a run that lost a record or did not end in time prints no figures. For figures to
compare clusters by, see docs/BENCHMARKS.md.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.ask.consume import FromFollower, Isolation, IsolationLevel
from strandline.cli.ask.produce import AcksName, CompressionName
from strandline.cli.connect import known_topic, open_admin, over_tls, tls_options
from strandline.cli.durations import Duration, duration_option, read_duration
from strandline.cli.failures import CommandFailed, perform
from strandline.cli.options import Bootstrap, Output, Topic, addresses, group_option
from strandline.cli.output import Format, console
from strandline.cli.perf import measure
from strandline.cli.perf.load import STAMP_BYTES, Load, warm_up_of

if TYPE_CHECKING:
    from rich.progress import Progress

    from strandline.client import Consumer, Producer

app = typer.Typer(help="Measure producing, consuming, and both together.", no_args_is_help=True)

MOST_RECORDS = 10_000_000
"""A latency is kept of each."""

_LOOK_EVERY_S = 0.1

Records = Annotated[
    int, typer.Option("--records", "-n", min=1, max=MOST_RECORDS, help="Number of measured records, after the warm-up.")
]
Size = Annotated[int, typer.Option("--size", min=1, max=1 << 20, help="Bytes of each value.")]
Rate = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Records per second; default: as many as possible.")
]
WarmUp = Annotated[
    int | None,
    typer.Option("--warm-up", min=0, max=MOST_RECORDS, help="Warm-up records; default: a tenth, at most 10,000."),
]
Deadline = Annotated[Duration, duration_option("--deadline", help="The longest time of the run.", least="1s")]
Acks = Annotated[AcksName, typer.Option(help="Wait for no replica, the leader, or all in-sync replicas.")]
Compression = Annotated[CompressionName, typer.Option(help="Codec of the batches.")]
Linger = Annotated[Duration, duration_option("--linger", help="How long a batch waits for more records.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]

_LINGER = read_duration("5ms")
_DEADLINE = read_duration("10m")


@app.callback()
def perf() -> None:
    """Measure producing, consuming, and both together."""


@app.command()
@over_tls
def produce(
    topic: Topic,
    bootstrap: Bootstrap,
    records: Records = 100_000,
    size: Size = 100,
    rate: Rate = None,
    warm_up: WarmUp = None,
    acks: Acks = AcksName.ALL,
    compression: Compression = CompressionName.NONE,
    linger: Linger = _LINGER,
    transactional: Annotated[
        Duration | None,
        duration_option(
            "--transactional", help="Send in transactions of this length, which need --acks all.", least="1ms"
        ),
    ] = None,
    deadline: Deadline = _DEADLINE,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Send records to a topic; a latency ends with the acknowledgement, or with the commit of the transaction.

    The records stay in the topic. A record counts from when --rate made it due, or from when it was handed over. How
    late a timer of this machine wakes the sender is not counted.
    """
    if transactional is not None and acks is not AcksName.ALL:
        raise typer.BadParameter("transactions need --acks all", param_hint="--transactional")
    load = Load(topic=topic, size_bytes=size, rate=rate, is_compressed=compression is not CompressionName.NONE)
    settings = _settings_of_producer(acks, compression, linger)
    # Of this run alone: two runs at a time must not fence each other.
    name = {} if transactional is None else {"transactional_id": f"strandline-perf-{load.run.hex()}"}
    warm = warm_up_of(warm_up, records)

    async def run(progress: Progress) -> measure.Measured:
        async with _producer(bootstrap, settings | name, load) as producer:
            return await measure.measure_producing(load, producer, records, warm, _counter(progress), transactional)

    shown = settings | {
        "rate": rate,
        "size": size,
        "transactional": None if transactional is None else str(transactional),
    }
    _perform(bootstrap, "produce", topic, run, shown, records, deadline, output, quiet)


@app.command()
@over_tls
def consume(
    topic: Topic,
    bootstrap: Bootstrap,
    records: Records = 100_000,
    warm_up: WarmUp = None,
    group: Annotated[
        str | None,
        group_option("Read as a member of this group, from where it has committed, and commit what was read."),
    ] = None,
    from_follower: FromFollower = False,
    isolation: IsolationLevel = Isolation.READ_COMMITTED,
    deadline: Deadline = _DEADLINE,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Read a topic from its beginning; a latency is how long a fetch was waited for.

    With --group the other members of the group share the partitions, and what was committed is not read again.
    """
    from_where = "follower" if from_follower else "leader"
    settings = {"read_from": from_where, "isolation": isolation.value}
    warm = warm_up_of(warm_up, records)

    async def run(progress: Progress) -> measure.Measured:
        if group is not None:
            return await _consume_in_group(bootstrap, settings, topic, group, records, warm, _counter(progress))
        async with _consumer(bootstrap, settings, stop_at_end=True) as consumer:
            assigned_s = time.monotonic()
            await _assign(consumer, topic, "beginning")
            return await measure.measure_consuming(
                consumer, topic, records, warm, _counter(progress), assigned_s=assigned_s
            )

    _perform(bootstrap, "consume", topic, run, settings, records, deadline, output, quiet)


@app.command("end-to-end")
@over_tls
def end_to_end(
    topic: Topic,
    bootstrap: Bootstrap,
    records: Records = 10_000,
    size: Annotated[int, typer.Option("--size", min=STAMP_BYTES, max=1 << 20, help="Bytes of each value.")] = 100,
    rate: Annotated[float, typer.Option("--rate", min=0.001, help="Records per second.")] = 1_000.0,
    warm_up: WarmUp = None,
    acks: Acks = AcksName.ALL,
    compression: Compression = CompressionName.NONE,
    linger: Linger = read_duration("0ms"),
    deadline: Deadline = _DEADLINE,
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """Send records and read them back; a latency ends when the consumer has the record.

    Both clients run in this process, so that one clock measures. A record counts from when --rate made it due; how
    late a timer of this machine wakes the sender is not counted.
    """
    is_compressed = compression is not CompressionName.NONE
    load = Load(topic=topic, size_bytes=size, rate=rate, is_compressed=is_compressed, is_stamped=True)
    settings = _settings_of_producer(acks, compression, linger)
    warm = warm_up_of(warm_up, records)

    async def run(progress: Progress) -> measure.Measured:
        reading = {"read_from": "leader", "isolation": Isolation.READ_COMMITTED.value}
        async with (
            _consumer(bootstrap, reading) as consumer,
            _producer(bootstrap, settings, load) as producer,
        ):
            await _assign(consumer, topic, "end")
            return await measure.measure_both(load, producer, consumer, records, warm, _counter(progress))

    _perform(
        bootstrap, "end-to-end", topic, run, settings | {"rate": rate, "size": size}, records, deadline, output, quiet
    )


async def _consume_in_group(
    bootstrap: str,
    settings: dict[str, Any],
    topic: str,
    group: str,
    records: int,
    warm_up: int,
    count: Callable[[int], None],
) -> measure.Measured:
    from strandline.cli.perf.member import open_member

    async with open_member(bootstrap, settings, topic, group) as reading:
        measured = await measure.measure_consuming(reading, topic, records, warm_up, count, group)
        measured.member = reading.figures()
        await reading.commit()
        return measured


def _settings_of_producer(acks: AcksName, compression: CompressionName, linger: Duration) -> dict[str, Any]:
    return {
        "acks": acks.value,
        "compression": compression.value,
        "idempotent": acks is AcksName.ALL,
        "linger_ms": linger.ms,
    }


@asynccontextmanager
async def _producer(bootstrap: str, settings: dict[str, Any], load: Load) -> AsyncIterator[Producer]:
    from strandline.client import Producer

    async with Producer(addresses(bootstrap), on_delivery=load.batch_ended, **tls_options(), **settings) as producer:
        async with known_topic(load.topic), AsyncExitStack() as ended:
            if "transactional_id" in settings:
                await ended.enter_async_context(producer.transaction())
            await producer.ready(load.topic)
        yield producer


@asynccontextmanager
async def _consumer(bootstrap: str, settings: dict[str, Any], *, stop_at_end: bool = False) -> AsyncIterator[Consumer]:
    from strandline.client import Consumer

    async with Consumer(addresses(bootstrap), stop_at_end=stop_at_end, **tls_options(), **settings) as consumer:
        yield consumer


async def _assign(consumer: Consumer, topic: str, start: Any) -> None:
    """Returns once the consumer knows where it begins in every partition, if that is at the end."""
    async with known_topic(topic):
        partitions = await consumer.assign([topic], start=start)
    while start == "end" and any(consumer.position(*partition) is None for partition in partitions):
        await asyncio.sleep(_LOOK_EVERY_S)


def _perform(
    bootstrap: str,
    kind: str,
    topic: str,
    run: Callable[[Progress], Any],
    settings: dict[str, Any],
    records: int,
    deadline: Duration,
    form: Format,
    quiet: bool,
) -> None:
    """Runs within the deadline, below a progress bar, and shows the figures with what they were obtained with."""

    async def bounded() -> dict[str, Any]:
        cluster = await _cluster(bootstrap, topic)
        with _progress(kind, records, quiet) as progress:
            # The garbage collector does not look at the command's own modules again and again: a program without them
            # reads a fifth faster.
            gc.collect()
            gc.freeze()
            try:
                async with asyncio.timeout(deadline.s):
                    measured = await run(progress)
            except TimeoutError:
                done = int(progress.tasks[0].completed)
                raise CommandFailed(f"not done within {deadline}: {done:,} of {records:,} records") from None
        return {"test": kind, "topic": topic, **measure.document_of(measured), "settings": settings, **cluster}

    from strandline.client import keep_large_buffers
    from strandline.runtime.process import fastest_loop

    # As a program that sends or reads much should.
    keep_large_buffers()
    measure.show_run(perform(bounded(), fastest_loop()), form)


async def _cluster(bootstrap: str, topic: str) -> dict[str, Any]:
    """What the figures depend on besides the settings."""
    from strandline import __version__

    async with open_admin(bootstrap) as admin:
        image = await admin.metadata()
    described = next((known for known in image.topics if known.name == topic), None)
    partitions = described.partitions if described else ()
    return {
        "partitions": len(partitions),
        "replicas": max((len(partition.replicas) for partition in partitions), default=0),
        "nodes": sorted(node.node_id for node in image.nodes if not node.fenced),
        "cluster_id": image.cluster_id,
        "feature_level": image.feature_level,
        "client_version": __version__,
        "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
    }


def _progress(kind: str, records: int, quiet: bool) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    target = console(stderr=True)
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn()]
    progress = Progress(*columns, console=target, disable=quiet or not target.is_terminal, transient=True)
    progress.add_task(kind, total=records)
    return progress


def _counter(progress: Progress) -> Callable[[int], None]:
    """Moves the bar, at most every tenth of a second: a run has millions of records."""
    (task_id,) = progress.task_ids
    shown_s = 0.0

    def count(records: int) -> None:
        nonlocal shown_s
        if (now_s := time.monotonic()) > shown_s + _LOOK_EVERY_S:
            progress.update(task_id, completed=records)
            shown_s = now_s

    return count
