"""`strandline analytics import ...`: makes an export of what another system left behind; needs no Spark and no JVM.

Invariant: sources are read only, and an export is written where nothing is yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.durations import FORMS, read_moment_us, time_text
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, fail
from strandline_kafka.commands.scrapes import read_scrapes

if TYPE_CHECKING:
    from strandline.export.destination import Destination
    from strandline_kafka.brokers.broker_logs import BrokerLog
    from strandline_kafka.brokers.checkpoints import Checkpoints
    from strandline_kafka.metadata.importing import Assumed, Import, Imported
    from strandline_kafka.metadata.log_files import Copy
    from strandline_kafka.metadata.passage import Window
    from strandline_kafka.metadata.writing import Earlier
    from strandline_kafka.scrapes.following import Before, Following
    from strandline_kafka.scrapes.series import Scrapes

app = typer.Typer(help="Make an export of the logs of another system.", no_args_is_help=True)

_KAFKA_PATTERN = "[%d] %p %m (%c)%n"
_BOUNDING_MS = 600_000
"""The time before the end of earlier scrapes that is asked for again, because earlier scrapes bound the next ones."""
_MIN_ISR, _LAG_TIME = "min.insync.replicas", "replica.lag.time.max.ms"


@app.callback()
def _only_a_group() -> None:
    """Make an export of the logs of another system."""


MetadataLog = Annotated[
    list[Path] | None,
    typer.Option(
        "--metadata-log",
        metavar="DIR",
        help="A log.dir of a KRaft controller, or its folder __cluster_metadata-0; repeat it for each node.",
    ),
]
DumpLog = Annotated[
    list[Path] | None,
    typer.Option(
        "--dump-log",
        metavar="FILE",
        help="Output of kafka-dump-log --cluster-metadata-decoder for one node's log and snapshots, in order, "
        "one file or several in a text; it proves nothing to be committed, see --trust-tail.",
    ),
]
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR|URI",
        help="Directory of the export; it must be empty or not exist yet, except with --append.",
    ),
]
ClusterId = Annotated[
    str | None, typer.Option("--cluster-id", help="The cluster's id, for a log without meta.properties beside it.")
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        "--assume",
        metavar="KEY=VALUE",
        help=f"What the log does not contain: {_MIN_ISR} of the brokers' files, {_LAG_TIME}. Repeatable.",
    ),
]
Logs = Annotated[
    list[str] | None,
    typer.Option(
        "--logs",
        metavar="n1=DIR",
        help="The folder of node 1's server.log, state-change.log and controller.log, also rotated or compressed, "
        "or what its container wrote, a file or a folder; repeat it for each node.",
    ),
]
LogPattern = Annotated[
    list[str] | None,
    typer.Option(
        "--log-pattern",
        metavar="PATTERN",
        help=f"The log4j pattern of these logs, or json for an object a line; repeat it for each layout that they "
        f"have.  [default: {_KAFKA_PATTERN}]",
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        metavar="n1=DIR",
        help="A log.dir of node 1 with its checkpoint files and the folders of its partitions, of which only the "
        "small files are read; repeat it for each node.",
    ),
]
Prometheus = Annotated[
    list[str] | None,
    typer.Option(
        "--prometheus",
        metavar="FILE|URL",
        help="Where the logs ended by a Prometheus that scraped the brokers: its address, which is asked for the "
        "time of the metadata log, a saved answer of /api/v1/query, or the text of promtool tsdb dump-openmetrics. "
        "Repeatable.",
    ),
]
PrometheusMapping = Annotated[
    Path | None,
    typer.Option(
        "--prometheus-mapping",
        metavar="FILE",
        help="How your exporter names the metric and its labels, and which broker each target is (TOML).",
    ),
]
Start = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help=f"Only events from then on: {FORMS}. It begins with every state."),
]
Append = Annotated[
    bool,
    typer.Option(
        "--append",
        help="Continue an earlier import of this cluster where it ended; not with --logs.",
    ),
]
TrustTail = Annotated[
    bool, typer.Option("--trust-tail", help="Also import the end of the log, which may not be committed.")
]
Inspect = Annotated[
    bool, typer.Option("--inspect", help="Only print what the logs have and how far it is proved; write nothing.")
]


@app.command()
def kafka(
    metadata_log: MetadataLog = None,
    dump_log: DumpLog = None,
    out: Out = "",
    cluster_id: ClusterId = None,
    assume: Assume = None,
    logs: Logs = None,
    log_pattern: LogPattern = None,
    partitions: Partitions = None,
    prometheus: Prometheus = None,
    prometheus_mapping: PrometheusMapping = None,
    start: Start = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help=f"Only events before: {FORMS}.")] = None,
    append: Append = False,
    trust_tail: TrustTail = False,
    inspect: Inspect = False,
) -> None:
    """Import the metadata log of an Apache Kafka cluster (KRaft, 3.3 to 4.3) as state events.

    Partitions, leaders, ISRs, registrations and fences, min.insync.replicas: every committed change since the first
    offset that is kept, with its cause where the log shows it. Give the logs of most controllers: what only one of them
    holds, and no snapshot contains, may not be committed, and is left out. The brokers' logs (--logs) add positions,
    cuts, times of members, clocks, and inferred causes; the checkpoint files of their partitions (--partitions) where
    epochs began, and whether a log lacks what was committed. Then: strandline analytics report -i EXPORT
    """
    from strandline_kafka.metadata.importing import Import, cluster_of

    assumed = _assumed(assume or [])
    folders, stores = _folders(logs or [], "--logs"), _folders(partitions or [], "--partitions")
    window = _window(start, end)
    if not inspect and not out:
        raise typer.BadParameter("--out: name the directory or URI of the export, or ask for --inspect")
    if append and (inspect or logs or start or end):
        raise typer.BadParameter(
            "--append goes on with the metadata log and its scrapes, without --inspect, --logs, --from and --to"
        )
    with _failures_shown(out, "--metadata-log" if metadata_log else "--dump-log"):
        read = _read_logs(folders, log_pattern or [_KAFKA_PATTERN])
        copies = _copies(metadata_log or [], dump_log or [])
        cluster = cluster_of(copies, cluster_id)
        checkpoints = _read_checkpoints(stores, cluster)
        earlier = _earlier(out, cluster, assumed, has_scrapes=bool(prometheus)) if append else None
        before = None if earlier is None or not prometheus else _scrapes_before(out, earlier)
        work = Import(
            copies,
            cluster,
            assumed=assumed,
            trust_tail=trust_tail,
            logs=read,
            checkpoints=checkpoints,
            window=window,
            earlier=earlier,
            said=_progress_of_records,
        )
        _tell_sources(copies, work)
        _tell_logs(read)
        _tell_checkpoints(checkpoints)
        scrapes = read_scrapes(prometheus or [], prometheus_mapping, _span(work, window, before))
        if inspect:
            return
        if work.result.proof.proved_end <= work.result.proof.first_offset:
            raise CommandFailed("--metadata-log: nothing of it is proved to be committed, so nothing is written")
        if earlier is not None and work.result.proof.proved_end <= earlier.end_offset:
            typer.echo(f"the export ends at offset {earlier.end_offset}, and nothing behind it is proved; unchanged")
            return
        destination = destination_of(out) if append else empty_destination(out, "import")
        with _progress(work):
            following = _following(scrapes, destination, cluster, window, before)
            done = work.write(destination, following)
        _tell(done, out)
        _tell_following(following)
        if not done.rows:
            typer.echo("strandline: note: no event lies in the window; see --inspect for what there is", err=True)


def _copies(directories: Sequence[Path], dumps: Sequence[Path]) -> list[Copy]:
    """The named logs.

    Raises:
        typer.BadParameter: none was.
    """
    from strandline_kafka.metadata.dump_log import open_dump
    from strandline_kafka.metadata.log_files import open_copy

    if not directories and not dumps:
        raise typer.BadParameter("--metadata-log: name the log.dir of a controller, or a text with --dump-log")
    copies = [open_copy(directory) for directory in directories]
    return [*copies, open_dump(list(dumps))] if dumps else copies


def _window(start: str | None, end: str | None) -> Window:
    """The requested part of the history.

    Raises:
        typer.BadParameter: one of them is not a moment, or the end is not after the start.
    """
    from strandline_kafka.metadata.passage import EVERYTHING, Window

    window = Window(
        EVERYTHING.start_us if start is None else read_moment_us(start, "--from"),
        EVERYTHING.end_us if end is None else read_moment_us(end, "--to"),
    )
    if window.end_us <= window.start_us:
        raise typer.BadParameter("--to: the end must be behind --from")
    return window


def _folders(pairs: Sequence[str], option: str) -> dict[int, Path]:
    """The directories given as ``n1=DIR``, by node.

    Raises:
        typer.BadParameter: it is not such a pair, or a node is named twice.
    """
    found: dict[int, Path] = {}
    for pair in pairs:
        node, _, folder = pair.partition("=")
        number = node.removeprefix("n")
        if not (number.isascii() and number.isdigit() and len(number) < 10 and folder):
            raise typer.BadParameter(f"{option}: {pair!r} must be a node and its folder, as n1=/var/log/kafka")
        if int(number) in found:
            raise typer.BadParameter(f"{option}: node {number} is given twice; put its files into one folder")
        found[int(number)] = Path(folder)
    return found


def _read_logs(folders: dict[int, Path], patterns: Sequence[str]) -> list[BrokerLog]:
    from strandline_kafka.brokers.broker_logs import read_logs
    from strandline_kafka.brokers.log_layout import layout_of
    from strandline_kafka.metadata.wire import Unreadable

    try:
        layout = layout_of(*patterns)
    except Unreadable as error:
        raise typer.BadParameter(f"--log-pattern: {error}") from error
    try:
        return [read_logs(node, folder, layout) for node, folder in sorted(folders.items())]
    except Unreadable as error:
        raise CommandFailed(f"--logs: {error}", EXIT_REFUSED) from error


def _read_checkpoints(folders: dict[int, Path], cluster: str) -> list[Checkpoints]:
    from strandline_kafka.brokers.checkpoints import read_checkpoints
    from strandline_kafka.metadata.wire import Unreadable

    try:
        return [read_checkpoints(node, folder, cluster) for node, folder in sorted(folders.items())]
    except Unreadable as error:
        raise CommandFailed(f"--partitions: {error}", EXIT_REFUSED) from error


def _span(work: Import, window: Window, before: Before | None) -> tuple[int, int]:
    """The imported period, ms; of existing scrapes it includes those that bound the next ones."""
    proof = work.result.proof
    begin_ms = max(proof.first_ms, window.start_us // 1_000)
    if before is not None and before.until_ms:
        begin_ms = max(begin_ms, min(before.until_ms.values()) - _BOUNDING_MS)
    return begin_ms, min(proof.last_ms + 1, window.end_us // 1_000)


def _following(
    scrapes: Scrapes | None, destination: Destination, cluster: str, window: Window, before: Before | None
) -> Following | None:
    from strandline_kafka.scrapes.following import NOTHING, Following

    if scrapes is None:
        return None
    return Following(scrapes, destination, cluster, (window.start_us, window.end_us), before or NOTHING)


def _tell_following(following: Following | None) -> None:
    if following is not None and following.late:
        typer.echo(
            f"strandline: note: --prometheus: {following.late:,} looks are of brokers that the export has no scrapes "
            "of, from the time that it has; they are left out, import into a new place to have them",
            err=True,
        )
    if following is not None and following.misplaced:
        topic, partition, node = min(following.misplaced)
        typer.echo(
            f"strandline: note: --prometheus: {len(following.misplaced)} series are of logs that the metadata log "
            f"places on other brokers, such as {topic}-{partition} on node {node}; is [nodes] right?",
            err=True,
        )


def _tell_checkpoints(several: Sequence[Checkpoints]) -> None:
    for one in several:
        typer.echo(f"partitions of node {one.node_id}: {len(one.replicas):,} replicas, {one.entries:,} epochs")


def _tell_logs(logs: Sequence[BrokerLog]) -> None:
    for log in logs:
        typer.echo(
            f"logs of node {log.node_id}: {log.files} files, {log.lines:,} lines, {len(log.facts):,} that matter"
        )
        for note in _not_understood(log):
            typer.echo(f"strandline: note: node {log.node_id}: {note}", err=True)


def _not_understood(log: BrokerLog) -> Iterator[str]:
    """The lines of a broker's logs that were not understood, although they may matter."""
    for family, count in sorted(log.unknown.items()):
        yield (
            f"{count} lines of the family {family!r} have an unknown form, the first at {log.samples[family]}; they "
            "are left out"
        )
    if (other := log.other_layout) is not None:
        yield (
            f"{other.lines} lines look like Kafka's and are of no layout that was given, the first at {other.first}; "
            "they are left out, give their --log-pattern too"
        )
    if not log.facts:
        yield "no line of its logs matters; are they those of a broker, and at level INFO?"
    if log.not_read:
        yield f"{len(log.not_read)} other files of its folder are not read, such as {log.not_read[0]}"


def _assumed(pairs: list[str]) -> Assumed:
    from strandline_kafka.metadata.importing import Assumed

    found: dict[str, int] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in (_MIN_ISR, _LAG_TIME):
            raise typer.BadParameter(f"--assume: {key!r} cannot be assumed; known are {_MIN_ISR} and {_LAG_TIME}")
        if not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 31):
            raise typer.BadParameter(f"--assume: {key}={value} must be a positive whole number, as {key}=2")
        found[key] = int(value)
    return Assumed(min_isr=found.get(_MIN_ISR), lag_time_max_ms=found.get(_LAG_TIME))


def _scrapes_before(out: str, earlier: Earlier) -> Before:
    from strandline_kafka.metadata.wire import Unreadable
    from strandline_kafka.scrapes.following import read_before

    try:
        return read_before(earlier.said)
    except Unreadable as error:
        raise CommandFailed(f"--append: {out}: {error}", EXIT_REFUSED) from error


def _earlier(out: str, cluster: str, assumed: Assumed, *, has_scrapes: bool) -> Earlier:
    from strandline_kafka.metadata.wire import Unreadable
    from strandline_kafka.metadata.writing import earlier_import
    from strandline_kafka.scrapes.following import PROMETHEUS

    try:
        return earlier_import(destination_of(out), cluster, assumed.said(), [PROMETHEUS] if has_scrapes else [])
    except Unreadable as error:
        raise CommandFailed(f"--append: {out}: {error}", EXIT_REFUSED) from error


def destination_of(out: str) -> Destination:
    """The place of an export.

    Raises:
        CommandFailed: it cannot be opened.
    """
    from strandline.export.destination import open_destination

    try:
        return open_destination(out)
    except ValueError as error:
        raise CommandFailed(f"--out: {error}", EXIT_UNREACHABLE) from error


def empty_destination(out: str, run: str) -> Destination:
    """The place of an export, which must be empty; ``run`` is the word for the source of one export.

    Raises:
        CommandFailed: it cannot be opened, or something is there.
    """
    destination = destination_of(out)
    if next(destination.names(""), None) is not None:
        raise CommandFailed(f"--out: {out} is not empty, and one {run} is one export; name another", EXIT_REFUSED)
    return destination


@contextmanager
def _failures_shown(out: str, option: str) -> Iterator[None]:
    from strandline_kafka.metadata.wire import Unreadable

    try:
        yield
    except CommandFailed as failure:
        raise fail(failure) from failure
    except Unreadable as error:
        raise fail(CommandFailed(f"{option}: {error}", EXIT_REFUSED)) from error
    except OSError as error:
        where = error.filename or out
        raise fail(CommandFailed(f"{where}: {error.strerror or error}", EXIT_UNREACHABLE)) from error


def _progress_of_records(records: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\rstrandline: {records:,} records", nl=False, err=True)


@contextmanager
def _progress(work: Import) -> Iterator[None]:
    yield
    if sys.stderr.isatty() and work.result.records >= 10_000:
        typer.echo("", err=True)


def _tell_sources(copies: list[Copy], work: Import) -> None:
    proof = work.result.proof
    for copy in copies:
        tail = f", {copy.tail_bytes} bytes at its end are not a whole batch" if copy.tail_bytes else ""
        typer.echo(f"{copy.name}: {len(copy.segments)} segments, {len(copy.snapshots)} snapshots{tail}")
        if copy.foreign is not None:
            typer.echo(
                f"strandline: note: --dump-log: {copy.foreign.lines} lines are none of kafka-dump-log's, the first at "
                f"{copy.foreign.first}; they are left out",
                err=True,
            )
    for note in proof.notes:
        typer.echo(f"strandline: note: {note}", err=True)
    voters = ", ".join(map(str, sorted(proof.voters))) or "not known"
    typer.echo(
        f"cluster {work.result.cluster_id}: offsets {proof.first_offset} to {proof.end_offset}, "
        f"committed up to {proof.proved_end}; voters {voters}"
    )
    if proof.proved_end < proof.end_offset:
        typer.echo(
            f"strandline: note: {proof.end_offset - proof.proved_end} records at the end are not proved to be "
            "committed and are left out; give the logs of most voters, each with its meta.properties, or --trust-tail",
            err=True,
        )


def _tell(done: Imported, out: str) -> None:
    if done.first_ms is not None and done.last_ms is not None:
        span = f", {time_text(done.first_ms * 1_000)} to {time_text(done.last_ms * 1_000)}"
    else:
        span = ""
    typer.echo(f"{done.records:,} records{span}: {done.rows:,} events in {done.files} files of {out}")
    if done.unknown:
        several = "; ".join(f"{count} of {name}" for name, count in sorted(done.unknown.items()))
        typer.echo(f"strandline: note: left out, and counted as gaps of the export: {several}", err=True)
    if done.unnamed_controllers:
        typer.echo(
            f"strandline: note: --dump-log: {done.unnamed_controllers} elections of a controller are without its "
            "name, as Kafka's tool prints them before 4.1; who led the quorum is not known",
            err=True,
        )
    for node, forms in sorted(done.left_out.items()):
        for form, left_out in sorted(forms.items()):
            typer.echo(
                f"strandline: note: node {node}: {left_out.lines} lines ({form}) are of no change that the metadata "
                f"log holds at their time, the first at {left_out.first}; they are left out",
                err=True,
            )
    for finding in done.findings:
        typer.echo(f"strandline: note: --partitions: {finding}", err=True)
    if done.dropped_of_transaction:
        lost = done.dropped_of_transaction
        typer.echo(f"strandline: note: {lost} records of transactions without an end are left out", err=True)
