"""Reads the logs of one broker, files of several loggers and their rotated parts, as facts in order of time.

It reads `server.log`, `state-change.log`, `controller.log` and their rotated and compressed parts, or the output of a
container, in one file or in several. Files are opened read-only and read line by line.

Invariant: at most `MOST_LINE` characters of a line are held. A line that seems relevant, but has no known form or
layout, is counted with the first of its kind and never guessed; damage is an `Unreadable` with its place.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from strandline_kafka.brokers.line_facts import LineFact
from strandline_kafka.brokers.line_forms import SETTINGS_BEGIN, may_matter, read_message, read_setting
from strandline_kafka.brokers.log_layout import Layout, LineParts, taken_out
from strandline_kafka.brokers.text_files import LeftOut, lines_of
from strandline_kafka.metadata.log_files import METADATA_TOPIC
from strandline_kafka.metadata.wire import Unreadable

MOST_LINE = 256 << 10
"""Characters of a line that are read; none of the forms is that long."""
MOST_FACTS = 4_000_000
"""The most facts of one broker in memory; their lines alone would take some 600 MB of log."""

_READ = re.compile(r"(?P<stem>server|state-change|controller|kafkaServer)\.(?:log|out)[.\w-]*")
"""The files of the distribution's folder that are read."""
_OTHERS = re.compile(r"(?!kafka-request|kafka-authorizer|log-cleaner|kafkaServer-gc|gc\.|connect|\d{20}\.).+")
"""Other files of a folder that may be a broker's; the logs of requests, cleaners and the JVM contain no form."""
_IN_BLOCK = re.compile(r"(?:^| )(?P<setting>\t[\w.-]+ = .*)")
"""A line of a block of settings, after any prefix of a container runtime."""
_BYTES = '"MESSAGE":['
"""A line with colours as journald gives it, in which no word is visible."""
_PART = re.compile(r"\S{20,40} (?:stdout|stderr) (?P<tag>[FP]) (?P<text>.*)")
"""A line as Kubernetes runtimes write it: a long line in parts, all but the last marked P."""


class Logged(NamedTuple):
    """A fact with its time by the broker's time of day, and its place."""

    at_ms: int
    """The time as written, as if it were UTC."""
    fact: LineFact
    place: str
    """``file:line``."""
    coarse_ms: int = 0
    """How far the real time may be from the written one."""


@dataclass(slots=True)
class BrokerLog:
    """The content read from one broker's logs."""

    node_id: int
    facts: list[Logged] = field(default_factory=list)
    files: int = 0
    lines: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Numbers of lines of a known family that fit no form, by family."""
    samples: dict[str, str] = field(default_factory=dict)
    """The place of the first such line, by family."""
    other_layout: LeftOut | None = None
    """Lines that seem relevant, but have none of the given layouts."""
    not_read: tuple[str, ...] = ()
    """Other files of the folder, which were not read."""


def read_logs(node_id: int, where: Path, layout: Layout) -> BrokerLog:
    """The facts of a broker's logs in a folder, or of one file.

    Raises:
        Unreadable: there is no log, no line has the layout, or a file is damaged.
    """
    series, not_read = _series(where, layout)
    log = BrokerLog(node_id, not_read=not_read)
    rows = [_in_order(parts, layout, log) for parts in series.values()]
    seen: set[tuple[int, LineFact]] | None = set() if len(rows) > 1 else None
    for _, one in heapq.merge(*rows, key=lambda row: row[0]):
        if seen is not None:
            # If a logger passes its lines on, two files have the same lines.
            if (one.at_ms, one.fact) in seen:
                continue
            seen.add((one.at_ms, one.fact))
        log.facts.append(one)
        if len(log.facts) > MOST_FACTS:
            raise Unreadable(f"{where}: more than {MOST_FACTS:,} lines matter; give fewer files, or --from and --to")
    if log.other_layout is not None and not log.facts:
        raise Unreadable(
            f"{where}: no line is of the layout that was given, though {log.other_layout.lines} look like Kafka's, the "
            f"first at {log.other_layout.first}; give --log-pattern as the broker's log4j configuration has it"
        )
    return log


def _series(where: Path, layout: Layout) -> tuple[dict[str, list[Path]], tuple[str, ...]]:
    """The files by the logger that wrote them, the parts of each in order of time, and those that are not read.

    A folder without the distribution's files is a container's: its files are parts of one log.
    """
    if where.is_file():
        return {where.name: [where]}, ()
    if not where.is_dir():
        raise Unreadable(f"{where} is neither a directory nor a file; give the folder of a broker's logs")
    found: dict[str, list[Path]] = {}
    others: list[Path] = []
    for path in sorted(path for path in where.iterdir() if path.is_file()):
        if name := _READ.fullmatch(path.name):
            found.setdefault(name["stem"], []).append(path)
        elif _OTHERS.fullmatch(path.name):
            others.append(path)
    if not found and not others:
        raise Unreadable(f"{where} holds no server.log, state-change.log or controller.log, and no other log")
    series = found or {"": others}
    in_order = {stem: sorted(paths, key=lambda path: _first_moment(path, layout)) for stem, paths in series.items()}
    return in_order, tuple(path.name for path in others) if found else ()


def _first_moment(path: Path, layout: Layout) -> tuple[int, str]:
    """The time of the first line that has one; rotated files have many names."""
    moments = (line.at_ms for _, text in _whole_lines(path) if (line := layout.parts(text)) is not None)
    return next(moments, 0), path.name


def _in_order(paths: list[Path], layout: Layout, log: BrokerLog) -> Iterator[tuple[int, Logged]]:
    """The facts of one logger, each with the latest time so far, by which the loggers are merged."""
    latest = 0
    log.files += len(paths)
    for one in _facts(paths, layout, log):
        latest = max(latest, one.at_ms)
        yield latest, one


def _facts(paths: list[Path], layout: Layout, log: BrokerLog) -> Iterator[Logged]:
    block: LineParts | None = None
    # A container's file may end within a block, which goes on in the next one.
    for path, (number, text) in ((each, line) for each in paths for line in _whole_lines(each)):
        log.lines += 1
        if block is not None and (inner := _IN_BLOCK.search(taken_out(text))) is not None:
            yield from _settings([inner["setting"]], block, f"{path.name}:{number}")
            continue
        block = None
        if not may_matter(text):
            continue
        place, begins_block = f"{path.name}:{number}", SETTINGS_BEGIN in text
        line = layout.head(text) if begins_block else layout.parts(text)
        if line is None:
            log.other_layout = (log.other_layout or LeftOut(0, place)).with_more(1)
            continue
        first, *rest = line.message.split("\n")
        if begins_block:
            # The settings are lines of their own, or one text in an object.
            block = line
            yield from _settings(rest, line, place)
        else:
            yield from _fact(line, first, place, log)


def _settings(lines: list[str], block: LineParts, place: str) -> Iterator[Logged]:
    found = (read_setting(line) for line in lines)
    return (Logged(block.at_ms, one, place, block.coarse_ms) for one in found if one is not None)


def _fact(line: LineParts, message: str, place: str, log: BrokerLog) -> Iterator[Logged]:
    read = read_message(message)
    if read is None:
        return
    if read.fact is None:
        log.unknown[read.family] += 1
        log.samples.setdefault(read.family, place)
        return
    if getattr(read.fact, "topic", None) == METADATA_TOPIC:
        # The same code cuts and loads the controllers' own log.
        return
    broker_id = getattr(read.fact, "broker_id", log.node_id)
    if broker_id != log.node_id:
        raise Unreadable(f"{place}: a line of node {broker_id} in the logs that were given as those of {log.node_id}")
    yield Logged(line.at_ms, read.fact, place, line.coarse_ms)


def _whole_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers; parts of a line split by a container runtime are joined."""
    number, held = 0, ""
    for line in lines_of(path, MOST_LINE):
        text = taken_out(line.text) if _BYTES in line.text else line.text
        part = _PART.match(text) if held or " std" in text[:60] else None
        is_open = part is not None and part["tag"] == "P"
        if not held and not is_open:
            yield line.number, text
            continue
        number = number if held else line.number
        held += text if part is None else part["text"]
        if not is_open or len(held) > MOST_LINE:
            yield number, held
            held = ""
    if held:
        yield number, held
