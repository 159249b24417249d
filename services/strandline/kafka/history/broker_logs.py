"""The logs of one broker, files of several loggers and their rotated parts, as one row of facts in order of time.

Read are `server.log`, `state-change.log`, `controller.log` and their rotated and compressed parts, or whatever one file
a container wrote. Files are opened read-only, line by line.

Invariant: at most `MOST_LINE_BYTES` of a line are held. A line of a known family that fits no form is counted, never
guessed; damage is an `Unreadable` with file and line.
"""

from __future__ import annotations

import gzip
import heapq
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from strandline.kafka.history.line_facts import LineFact
from strandline.kafka.history.line_forms import SETTINGS_BEGIN, may_matter, read_message, read_setting
from strandline.kafka.history.log_files import METADATA_TOPIC
from strandline.kafka.history.log_layout import Layout, Line
from strandline.kafka.history.wire import Unreadable

MOST_LINE_BYTES = 64 << 10
"""A longer line is read in parts, of which only the first can be a form."""
MOST_FACTS = 4_000_000
"""Facts of one broker that are held; a broker that logs so much has a log of some 600 MB of them alone."""

_READ = re.compile(r"(?P<stem>server|state-change|controller|kafkaServer)\.(?:log|out)(?P<rest>[.\w-]*)")
"""Which files of a folder are read; the logs of requests, authorizers, cleaners and of the JVM hold no form."""


class Logged(NamedTuple):
    """A fact, when by the broker's time of day, and where it stands."""

    at_ms: int
    """As written, as if it were UTC."""
    fact: LineFact
    place: str
    """``file:line``."""


@dataclass(slots=True)
class BrokerLog:
    """What was read of one broker's logs."""

    node_id: int
    facts: list[Logged] = field(default_factory=list)
    files: int = 0
    lines: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Lines of a known family that fit no form, by family."""
    samples: dict[str, str] = field(default_factory=dict)
    """Where the first of them stands, by family."""
    other_layout: int = 0
    """Lines that look as if they mattered, and are not of the layout."""


def read_logs(node_id: int, where: Path, layout: Layout) -> BrokerLog:
    """The facts of a broker's logs in a folder, or of one file.

    Raises:
        Unreadable: there is none, no line is of the layout, or a file is damaged.
    """
    log = BrokerLog(node_id)
    rows = [_in_order(parts, layout, log) for parts in _series(where, layout).values()]
    seen: set[tuple[int, LineFact]] | None = set() if len(rows) > 1 else None
    for _, one in heapq.merge(*rows, key=lambda row: row[0]):
        if seen is not None:
            # Where a logger passes its lines on, two files have the same.
            if (one.at_ms, one.fact) in seen:
                continue
            seen.add((one.at_ms, one.fact))
        log.facts.append(one)
        if len(log.facts) > MOST_FACTS:
            raise Unreadable(f"{where}: more than {MOST_FACTS:,} lines matter; give fewer files, or --from and --to")
    if log.other_layout and not log.facts:
        raise Unreadable(
            f"{where}: no line is of the layout that was given, though {log.other_layout} look like Kafka's; "
            "give --log-pattern as the broker's log4j configuration has it"
        )
    return log


def _series(where: Path, layout: Layout) -> dict[str, list[Path]]:
    """The files by the logger that wrote them, the parts of each in order of time."""
    if where.is_file():
        return {where.name: [where]}
    if not where.is_dir():
        raise Unreadable(f"{where} is no directory and no file; give the folder of a broker's logs")
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in where.iterdir() if path.is_file()):
        if name := _READ.fullmatch(path.name):
            found.setdefault(name["stem"], []).append(path)
    if not found:
        raise Unreadable(f"{where} holds no server.log, state-change.log or controller.log")
    return {stem: sorted(paths, key=lambda path: _first_moment(path, layout)) for stem, paths in found.items()}


def _first_moment(path: Path, layout: Layout) -> tuple[int, str]:
    """When the first line with a time was written; rotated files have many names."""
    for _, text in _lines(path):
        if (line := layout.parts(text)) is not None:
            return line.at_ms, path.name
    return 0, path.name


def _in_order(paths: list[Path], layout: Layout, log: BrokerLog) -> Iterator[tuple[int, Logged]]:
    """The facts of one logger, each with the latest time so far, by which loggers are merged."""
    latest = 0
    for path in paths:
        log.files += 1
        for one in _facts(path, layout, log):
            latest = max(latest, one.at_ms)
            yield latest, one


def _facts(path: Path, layout: Layout, log: BrokerLog) -> Iterator[Logged]:
    block: Line | None = None
    for number, text in _lines(path):
        log.lines += 1
        if block is not None and text.startswith("\t"):
            if (setting := read_setting(text)) is not None:
                yield Logged(block.at_ms, setting, f"{path.name}:{number}")
            continue
        block = None
        if not may_matter(text):
            continue
        begins_block = SETTINGS_BEGIN in text
        line = layout.head(text) if begins_block else layout.parts(text)
        if line is None:
            log.other_layout += 1
            continue
        first, *rest = line.message.split("\n")
        if begins_block:
            # The settings are lines of their own, or one text in an object.
            block = line
            settings = filter(None, map(read_setting, rest))
            yield from (Logged(line.at_ms, setting, f"{path.name}:{number}") for setting in settings)
        else:
            yield from _fact(line.at_ms, first, f"{path.name}:{number}", log)


def _fact(at_ms: int, message: str, place: str, log: BrokerLog) -> Iterator[Logged]:
    read = read_message(message)
    if read is None:
        return
    if read.fact is None:
        log.unknown[read.family] += 1
        log.samples.setdefault(read.family, place)
        return
    if getattr(read.fact, "topic", None) == METADATA_TOPIC:
        # The controllers' own log is cut and loaded by the same code.
        return
    broker_id = getattr(read.fact, "broker_id", log.node_id)
    if broker_id != log.node_id:
        raise Unreadable(f"{place}: a line of node {broker_id} in the logs that were given as those of {log.node_id}")
    yield Logged(at_ms, read.fact, place)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, from 1."""
    number, is_start = 0, True
    with _opened(path) as file:
        while True:
            try:
                content = file.readline(MOST_LINE_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise Unreadable(f"{path}: behind line {number} the compressed file is damaged: {error}") from error
            if not content:
                return
            number += is_start
            if is_start:
                yield number, content.decode("utf-8", "replace").rstrip("\r\n")
            is_start = content.endswith(b"\n")


def _opened(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")
