"""`strandline log ...`: the batches on disk, and whether the replicas' logs are equal.

Invariant: exit code 0 means that everything checked is sound (dump) or equal (verify); 1 that it is not.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.connect import over_tls
from strandline.cli.durations import time_text
from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, explained, perform
from strandline.cli.options import Output
from strandline.cli.output import Column, Format, console, for_programs, print_document, show
from strandline.units import bytes_text

if TYPE_CHECKING:
    from strandline.cli.local.log_equality import Equality
    from strandline.core.types import BatchHeader
    from strandline.storage.inspect import DumpedBatch

app = typer.Typer(
    help="Read logs directly: batches, CRCs, whether the replicas are byte-equal.",
    no_args_is_help=True,
)

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

_VACUOUS = (
    "logs hold records of which none could be compared; the HW is written every few seconds and at a clean stop: wait, "
    "stop the nodes, or compare the running cluster with --bootstrap"
)

_BATCH_COLUMNS = [
    Column("base_offset", "first", number=True),
    Column("last_offset", "last", number=True),
    Column("leader_epoch", "epoch", number=True),
    Column("size_bytes", "bytes", number=True),
    Column("compression", "codec"),
    Column("time", "newest record (UTC)"),
    Column("producer_text", "producer"),
    Column("transaction", "transaction"),
    Column("crc", "CRC"),
    Column("place_text", "segment @ byte"),
]


@app.command()
def dump(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A node's data directory, or one partition's.")],
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="TOPIC-N", help="Only this partition's log.")
    ] = None,
    from_offset: Annotated[int, typer.Option("--from", min=0, help="Only batches from this offset on.")] = 0,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most this many batches per log.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the batches of a log on disk: offsets, epochs, sizes, CRC state.

    Reads only the files and contacts no process. Exit code 1 when a batch is damaged. HW and LSO are those of the last
    checkpoint, a few seconds old on a live node.
    """
    with explained():
        damaged = _dump(directory, partition, from_offset, limit, output)
    if damaged:
        raise typer.Exit(1)


def _dump(directory: Path, only: str | None, from_offset: int, limit: int | None, form: Format) -> bool:
    from strandline.storage.inspect import dump_log

    logs = [path for path in find_logs(directory).values() if only in (None, path.name)]
    if not logs:
        raise CommandFailed(f"{directory}: no log is named {only!r}; name it TOPIC-N, for example orders-0")
    dumped = [(path, [_batch_row(batch) for batch in islice(dump_log(path, from_offset), limit)]) for path in logs]
    if form is Format.TABLE:
        for path, rows in dumped:
            _print_log(path, rows)
    else:
        print_document([_log_document(path, rows) for path, rows in dumped], form)
    return any(row["crc"] != "ok" for _, rows in dumped for row in rows)


def find_logs(directory: Path) -> dict[tuple[str, int], Path]:
    """The logs in a node's data directory, or the one log when ``directory`` is a partition's own.

    Raises:
        CommandFailed: when there is no log.
    """
    from strandline.storage.inspect import log_directories
    from strandline.storage.layout import segment_paths
    from strandline.storage.log import log_name

    if not directory.is_dir():
        raise CommandFailed(f"{directory}: no such directory", EXIT_UNREACHABLE)
    if segment_paths(directory):
        return {log_name(directory): directory}
    found = log_directories(directory)
    if not found:
        hint = "give a node's data directory or a partition's (TOPIC-N)"
        raise CommandFailed(f"{directory}: no log here; {hint}", EXIT_UNREACHABLE)
    return dict(sorted(found.items()))


def _batch_row(batch: DumpedBatch) -> dict[str, Any]:
    segment = batch.path.stem.lstrip("0") or "0"
    row: dict[str, Any] = {
        "crc": batch.fault or ("ok" if batch.crc_ok else "damaged"),
        "segment": batch.path.name,
        "position": batch.position,
        "place_text": f"{segment} @ {batch.position:,}",
    }
    from strandline.records.batch import codec_of

    header = batch.header
    if header is None:
        return row
    sent, codec = header.producer, codec_of(header)
    return row | {
        "base_offset": header.base_offset,
        "last_offset": header.base_offset + header.record_count - 1,
        "records": header.record_count,
        "leader_epoch": header.leader_epoch,
        "size_bytes": header.size_bytes,
        "compression": _CODECS[codec] if codec < len(_CODECS) else str(codec),
        "time": None if header.max_timestamp_ms < 0 else time_text(header.max_timestamp_ms * 1_000),
        "producer_id": sent.producer_id if sent else None,
        "producer_epoch": sent.producer_epoch if sent else None,
        "base_sequence": sent.base_sequence if sent else None,
        "producer_text": _producer_text(header),
        "transaction": _transaction_text(header),
        "coordinator_epoch": header.marker.coordinator_epoch if header.marker else None,
    }


def _producer_text(header: BatchHeader) -> str | None:
    sent = header.producer
    if sent is None:
        return None
    sequence = "" if header.marker else f" seq {sent.base_sequence}"
    return f"{sent.producer_id}/{sent.producer_epoch}{sequence}"


def _transaction_text(header: BatchHeader) -> str | None:
    """`part` of a transaction, or the marker that ends one; None for a plain batch."""
    from strandline.core.types import TRANSACTIONAL_BIT

    if header.marker is not None:
        return "commit" if header.marker.committed else "abort"
    return "part" if header.attributes & TRANSACTIONAL_BIT else None


def _print_log(path: Path, rows: list[dict[str, Any]]) -> None:
    log = _log_document(path, [])
    screen = console()
    screen.print(f"[bold]{path.name}[/]  topic id {log['topic_id'] or 'unknown'}  {bytes_text(log['size_bytes'])}")
    epochs = ", ".join(f"{entry['epoch']} from {entry['start_offset']:,}" for entry in log["epochs"]) or "none"
    screen.print(
        f"log start {log['log_start_offset']:,}   HW {log['high_watermark']:,} (last checkpoint)   "
        f"LSO {log['last_stable_offset']:,}   LEO {log['leo']:,}   epochs {epochs}"
    )
    if log["held_by"] is not None:
        screen.print(_holder_text(log["held_by"]))
    screen.print()
    show(rows, _BATCH_COLUMNS, Format.TABLE, empty="no batches")
    screen.print()


def _holder_text(held_by: dict[str, Any]) -> str:
    """Which transaction readers of committed records wait for."""
    if held_by["producer_id"] is None:
        who = "a transaction"
    else:
        who = f"the transaction of producer {held_by['producer_id']}/{held_by['producer_epoch']}"
    begun, marker = f"LSO held by {who}, begun at {held_by['first_offset']:,}", held_by["marker_offset"]
    return f"{begun}, open" if marker is None else f"{begun}, decided at {marker:,}, not below the HW yet"


def _log_document(path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    from strandline.storage.checkpoints import Checkpoints
    from strandline.storage.inspect import described, log_bounds, stable_end
    from strandline.storage.log import log_name

    checkpoints = Checkpoints.load(path.parent)
    bounds, (topic, partition) = log_bounds(path, checkpoints), log_name(path)
    beside, stable = described(path, checkpoints), stable_end(path, bounds)
    return {
        "topic": topic,
        "partition": partition,
        "topic_id": beside.topic_id,
        "log_start_offset": bounds.log_start_offset,
        "high_watermark": bounds.high_watermark,
        "last_stable_offset": stable.last_stable_offset,
        "held_by": None if stable.holder is None else stable.holder._asdict(),
        "leo": bounds.leo,
        "size_bytes": bounds.size_bytes,
        "epochs": [{"epoch": entry.epoch, "start_offset": entry.start_offset} for entry in beside.epochs],
        "batches": for_programs(rows),
    }


@app.command()
@over_tls
def verify(
    directories: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="The replicas' data directories, two or more.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="STRANDLINE_BOOTSTRAP",
            metavar="HOST:PORT[,...]",
            help="Query a running cluster.",
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Check that the replicas of every partition hold the same bytes up to the lowest HW.

    With data directories the files are compared, up to the HW that was saved last: on a running node that is up to 5 s
    old. With --bootstrap every replica of a running cluster is read, up to the HW it knows.
    Exit code 1 when two differ, or when nothing could be compared though there are records.
    """
    if directories:
        report(verify_files(directories, topic), output)
    elif bootstrap:
        from strandline.cli.local.log_over_rpc import verify_cluster

        report(perform(verify_cluster(bootstrap, topic)), output)
    else:
        raise typer.BadParameter("give the replicas' data directories, or --bootstrap for a running cluster")


def verify_files(directories: list[Path], topic: str | None = None) -> list[Equality]:
    """Compares the logs that at least two of ``directories`` hold.

    Raises:
        CommandFailed: when no log lies in two of them, or one name belongs to two topic ids.
    """
    held: dict[tuple[str, int], dict[str, Path]] = {}
    for name, directory in zip(_short_names(directories), directories, strict=True):
        for key, path in find_logs(directory).items():
            held.setdefault(key, {})[name] = path
    results = [
        _compare_files(name, partition, paths)
        for (name, partition), paths in sorted(held.items())
        if len(paths) > 1 and topic in (None, name)
    ]
    if not results:
        raise CommandFailed("nothing to compare: no log lies in two of the directories")
    return results


def _compare_files(topic: str, partition: int, paths: dict[str, Path]) -> Equality:
    from strandline.cli.local.log_equality import Equality
    from strandline.storage.inspect import compare_logs, described

    ids = sorted({str(described(path).topic_id) for path in paths.values()})
    if len(ids) > 1:
        raise CommandFailed(f"{topic}-{partition}: logs of different topics ({', '.join(ids)}) have this name")
    found = compare_logs(list(paths.values()))
    return Equality(
        topic=topic,
        partition=partition,
        replicas=tuple(paths),
        start=found.start,
        end=found.end,
        leo=found.leo,
        batches=found.batches,
        size_bytes=found.size_bytes,
        difference=found.reason,
    )


def _short_names(directories: list[Path]) -> list[str]:
    names = [directory.resolve().name for directory in directories]
    return names if len(set(names)) == len(names) else [str(directory) for directory in directories]


def report(results: list[Equality], form: Format) -> None:
    """Prints the results.

    Raises:
        typer.Exit: 1, when a difference was found, or nothing was compared where there are records.
    """
    rows = [equality_row(result) for result in results]
    columns = [
        Column("topic", "topic"),
        Column("partition", "partition", number=True),
        Column("replicas", "replicas"),
        Column("range_text", "offsets"),
        Column("batches", "batches", number=True),
        Column("size_text", "bytes", number=True),
        Column("result", "result"),
    ]
    show(rows if form is Format.TABLE else for_programs(rows), columns, form)
    if any(result.is_vacuous for result in results):
        typer.echo(f"strandline: {_VACUOUS}", err=True)
    if not all(result.equal for result in results):
        raise typer.Exit(1)


def equality_row(result: Equality) -> dict[str, Any]:
    """One partition's result as a row."""
    return {
        "topic": result.topic,
        "partition": result.partition,
        "replicas": list(result.replicas),
        "start": result.start,
        "end": result.end,
        "range_text": f"{result.start:,} to {result.end:,}",
        "batches": result.batches,
        "size_bytes": result.size_bytes,
        "size_text": bytes_text(result.size_bytes),
        "leo": result.leo,
        "equal": result.equal,
        "result": result.verdict,
    }
