"""`strandline analytics collect ...`: makes an export by looking at a running system; needs no Spark and no JVM.

Invariant: nothing is changed there, and an export is written where nothing is yet. Interrupt and SIGTERM end it well.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.durations import Duration, duration_option
from strandline.cli.failures import EXIT_REFUSED, EXIT_UNREACHABLE, CommandFailed, perform
from strandline_kafka.commands.import_kafka import empty_destination

if TYPE_CHECKING:
    from strandline_kafka.collector.cluster import Broker
    from strandline_kafka.collector.collecting import Collected, WantedCollection
    from strandline_kafka.collector.connection import Login, Security

app = typer.Typer(help="Make an export by watching another system.", no_args_is_help=True)

_MIN_ISR = "min.insync.replicas"


@app.callback()
def _only_a_group() -> None:
    """Make an export by watching another system."""


Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap", metavar="HOST:PORT", help="Brokers' listeners for clients, separated by commas."),
]
Out = Annotated[
    str, typer.Option("--out", metavar="DIR|URI", help="Directory of the export; it must be empty or not exist yet.")
]
Period = Annotated[
    Duration | None,
    duration_option(
        "--period",
        help="Time between refreshes. Default: 500ms, and proportionally longer with more than 1,000 partitions.",
        least="50ms",
        most="1m",
    ),
]
Length = Annotated[
    Duration | None, duration_option("--for", help="End after this time; default: when interrupted.", least="1ms")
]
Topics = Annotated[
    list[str] | None, typer.Option("--topics", metavar="NAMES", help="Only these, separated by commas; repeatable.")
]
MetadataLog = Annotated[
    list[Path] | None,
    typer.Option(
        "--metadata-log",
        metavar="DIR",
        help="On a controller: its log.dir. What was decided meanwhile comes into the export, exactly. Repeatable.",
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="KEY=VALUE", help=f"Where the brokers do not show it: {_MIN_ISR}."),
]
TlsCa = Annotated[Path | None, typer.Option("--tls-ca", metavar="FILE", help="Use TLS and trust this authority (PEM).")]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Use this certificate (PEM).")]
Sasl = Annotated[
    str | None,
    typer.Option("--sasl", metavar="MECHANISM", help="Log in by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="With --sasl: the file with the password.")
]


@app.command()
def kafka(
    bootstrap: Bootstrap,
    out: Out,
    period: Period = None,
    length: Length = None,
    topics: Topics = None,
    metadata_log: MetadataLog = None,
    assume: Assume = None,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS and trust the system's authorities.")] = False,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None,
    sasl: Sasl = None,
    user: Annotated[str | None, typer.Option("--user", help="With --sasl: the user's name.")] = None,
    password_file: PasswordFile = None,
) -> None:
    """Look at an Apache Kafka cluster (3.3 or later) again and again: where each replica's log ends, and the HW.

    It asks as a client does, with Describe on the cluster and its topics, and changes nothing. Membership comes as
    snapshots: what changed between two looks is not seen. The metadata log has it: give it with --metadata-log on a
    controller, or import it later (strandline analytics import kafka). Then: strandline analytics stats s01 -i EXPORT
    """
    from strandline_kafka.collector.collecting import WantedCollection

    wanted = WantedCollection(
        topics=_names(topics),
        period_ms=None if period is None else max(1, round(period.ms)),
        for_s=None if length is None else length.s,
        min_isr=_assumed(assume or []),
        metadata_logs=tuple(metadata_log or ()),
    )
    brokers = _addresses(bootstrap)
    with_login = _login(sasl, user, password_file)
    perform(_collect(brokers, _security(tls, tls_ca, tls_cert, tls_key, with_login), out, wanted))


def _names(lists: list[str] | None) -> tuple[str, ...] | None:
    names = [part.strip() for text in lists or () for part in text.split(",") if part.strip()]
    if lists and not names:
        raise typer.BadParameter("--topics: name at least one topic")
    return tuple(dict.fromkeys(names)) or None


def _addresses(text: str) -> list[Broker]:
    from strandline_kafka.collector.cluster import Broker

    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise typer.BadParameter(f"--bootstrap: {part!r} is no HOST:PORT, as kafka-1.example.org:9092")
        found.append(Broker(host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise typer.BadParameter("--bootstrap: name a broker as HOST:PORT")
    return found


def _assumed(pairs: list[str]) -> int | None:
    found: int | None = None
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key != _MIN_ISR or not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 31):
            raise typer.BadParameter(f"--assume: {pair!r} must be {_MIN_ISR}=N with a positive whole number")
        found = int(value)
    return found


def _login(mechanism: str | None, user: str | None, password_file: Path | None) -> Login | None:
    from strandline_kafka.collector.connection import MECHANISMS, Login

    if mechanism is None:
        if user is not None or password_file is not None:
            raise typer.BadParameter("--user and --password-file go with --sasl")
        return None
    if mechanism.upper() not in MECHANISMS:
        raise typer.BadParameter(f"--sasl: {mechanism!r} is none of {', '.join(MECHANISMS)}")
    if user is None or password_file is None:
        raise typer.BadParameter("--sasl needs --user and --password-file")
    try:
        password = password_file.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"--password-file: {password_file}: {getattr(error, 'strerror', error)}") from None
    return Login(mechanism.upper(), user, password)


def _security(tls: bool, ca: Path | None, cert: Path | None, key: Path | None, login: Login | None) -> Security:
    from strandline_kafka.collector.connection import Security, tls_context

    if key is not None and cert is None:
        raise typer.BadParameter("--tls-key goes with --tls-cert")
    if not (tls or ca or cert):
        return Security(login=login)
    try:
        return Security(tls_context(ca, cert, key), login)
    except ssl.SSLError as error:
        raise typer.BadParameter(f"--tls-ca, --tls-cert, --tls-key: no PEM: {error.reason or error}") from None
    except OSError as error:
        raise typer.BadParameter(f"--tls-ca, --tls-cert, --tls-key: {error.strerror or error}") from None


async def _collect(brokers: list[Broker], security: Security, out: str, wanted: WantedCollection) -> None:
    from strandline_kafka.collector.collecting import Collection, reach
    from strandline_kafka.collector.connection import Refused, Unreachable

    try:
        destination = empty_destination(out, "collection")
        reached = await reach(brokers, security, wanted.topics)
    except Refused as error:
        raise CommandFailed(f"--bootstrap: {error}", EXIT_REFUSED) from error
    except Unreachable as error:
        raise CommandFailed(f"--bootstrap: {error}", EXIT_UNREACHABLE) from error
    cluster = reached[2]
    try:
        _check_logs(wanted.metadata_logs, cluster.cluster_id)
    except CommandFailed:
        reached[0].close()
        raise
    typer.echo(
        f"cluster {cluster.cluster_id}: {len(cluster.partitions)} partitions of {len(cluster.topics)} topics, "
        f"{len(cluster.brokers)} brokers; writing to {out}, end it with an interrupt",
        err=True,
    )
    stop = asyncio.Event()
    heard = (signal.SIGINT, signal.SIGTERM)
    loop = asyncio.get_running_loop()
    for number in heard:
        loop.add_signal_handler(number, stop.set)
    progress = _Progress()
    try:
        done = await Collection(reached, security, destination, wanted, progress.show).run(stop)
    except OSError as error:
        progress.end()
        raise CommandFailed(f"--out: {out}: {error.strerror or error}", EXIT_UNREACHABLE) from error
    finally:
        for number in heard:
            with contextlib.suppress(RuntimeError):
                loop.remove_signal_handler(number)
    progress.end()
    _sum_up(done, out)


def _check_logs(directories: Sequence[Path], cluster_id: str) -> None:
    """Refuse a metadata log before anything is written, and not after an hour."""
    from strandline_kafka.collector.files import copies_of
    from strandline_kafka.metadata.wire import Unreadable

    try:
        if directories:
            copies_of(directories, cluster_id)
    except Unreadable as error:
        raise CommandFailed(f"--metadata-log: {error}", EXIT_REFUSED) from error
    except OSError as error:
        raise CommandFailed(f"--metadata-log: {error.strerror or error}", EXIT_UNREACHABLE) from error


class _Progress:
    """One line on stderr that is rewritten at each look; nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self._notes = 0
        self._shown = False

    def show(self, so_far: Collected) -> None:
        """Show the progress, and what was noticed since the last call."""
        for note in so_far.notes[self._notes :]:
            self.end()
            typer.echo(f"strandline: note: {note}", err=True)
        self._notes = len(so_far.notes)
        if sys.stderr.isatty():
            silent = f", no answer of {', '.join(map(str, so_far.silent))}" if so_far.silent else ""
            line = f"{so_far.looks:,} looks at {so_far.partitions:,} partitions, every {so_far.period_ms} ms{silent}"
            typer.echo(f"\rstrandline: {line}\x1b[K", nl=False, err=True)
            self._shown = True

    def end(self) -> None:
        """End the line."""
        if self._shown:
            typer.echo("", err=True)
            self._shown = False


def _sum_up(done: Collected, out: str) -> None:
    typer.echo(
        f"{done.looks:,} looks at {done.partitions:,} partitions of {len(done.nodes)} brokers: "
        f"{done.rows:,} events in {done.files} files of {out}"
    )
    if done.voided:
        several = "; ".join(f"{count:,} because {reason}" for reason, count in done.voided.most_common())
        typer.echo(f"strandline: note: partitions not looked at, counted as gaps of the export: {several}", err=True)
