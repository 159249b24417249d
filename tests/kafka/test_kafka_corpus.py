"""Logs of six releases in every layout: the same facts, whatever wrote, wrapped, packed or redirected them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpus_files import RELEASES, files_of, unpack

from strandline.export.destination import LocalDirectory
from strandline_kafka.brokers.broker_logs import BrokerLog, read_logs
from strandline_kafka.brokers.line_facts import IsrUpdated, LeaderStarted, LineFact, ShrinkProposed
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, JSON_LAYOUT, layout_of
from strandline_kafka.metadata.dump_log import open_dump
from strandline_kafka.metadata.importing import Import, Imported, cluster_of
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.wire import Unreadable

PATTERNS = {
    "strimzi": "%d{yyyy-MM-dd HH:mm:ss} %-5p [%t] %c{1}:%L - %m%n",
    "strimzi-log4j1": "%d{ISO8601} %p %m (%c) [%t]%n",
    "confluent": "[%p] %d [%t] %c %M - %m%n",
    "coloured": "[%d] %highlight{%p} %m (%c)%n",
    "ecs": JSON_LAYOUT,
    "json": JSON_LAYOUT,
}
"""As `corpus/generate.py` has them."""
NODES = (1, 2, 3)
Read = tuple[Imported, list[BrokerLog]]
Facts = set[tuple[int, LineFact]]


def facts_of(log: BrokerLog) -> Facts:
    return {(one.at_ms, one.fact) for one in log.facts}


def of_distribution(release: str, below: Path) -> BrokerLog:
    """What node 1's files say, as the distribution's configuration writes them."""
    folder = unpack(release, below) / "node1" / "logs" / "distribution"
    return read_logs(1, folder, layout_of(DEFAULT_PATTERN))


@pytest.fixture(scope="module", params=RELEASES)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """A release's three nodes, with their logs."""
    root = unpack(request.param, tmp_path_factory.mktemp("corpus"))
    copies = [open_copy(root / f"node{node}" / "data") for node in NODES]
    layout = layout_of(DEFAULT_PATTERN)
    logs = [read_logs(node, root / f"node{node}" / "logs" / "distribution", layout) for node in NODES]
    work = Import(copies, cluster_of(copies, None), logs=logs, trust_tail=True)
    return work.write(LocalDirectory(root / "out")), logs


def test_each_release_is_read_whole(imported: Read) -> None:
    """No record, no line of a known family and no layout is unknown, and every snapshot is equal."""
    done, logs = imported
    assert (done.unknown, done.findings) == (Counter(), [])
    assert [(log.unknown, log.other_layout, log.not_read) for log in logs] == [(Counter(), None, ())] * 3
    assert done.snapshots_equal > 3
    kinds = Counter(type(one.fact) for log in logs for one in log.facts)
    assert min(kinds[kind] for kind in (ShrinkProposed, IsrUpdated, LeaderStarted)) > 5


def test_every_line_finds_its_decision(imported: Read) -> None:
    """Nothing is left out, though the topic `again` was made twice and has the same epochs in both lives."""
    done, logs = imported
    assert done.left_out == {1: {}, 2: {}, 3: {}}
    assert done.learnt is not None
    for log in logs:
        joined = done.learnt.joined[log.node_id]
        again = [
            joined.decisions[place].after.tp.topic_id
            for place, one in enumerate(log.facts)
            if isinstance(one.fact, LeaderStarted | IsrUpdated) and one.fact.topic == "again"
        ]
        assert len({*again}) == 2 or log.node_id != 1


def test_the_clock_of_one_machine_is_right(imported: Read) -> None:
    """All nodes ran on one machine: each interval that was measured holds 0, in the zone UTC."""
    done, _ = imported
    spans = [span for clock in done.learnt.clocks.values() for span in clock.spans]
    assert len(spans) >= 3
    assert all(span.zone_ms == 0 and span.low_ms <= 0 <= span.high_ms for span in spans)


@pytest.mark.parametrize("release", RELEASES)
def test_a_log_that_begins_at_a_snapshot_takes_no_line_from_before_it(release: str, tmp_path: Path) -> None:
    """Behind each snapshot, some between the two topics `again`: no clock is wrong, and what is left out is said."""
    root = unpack(release, tmp_path)
    sections = re.split(r"(?m)^(?=Dumping )", (root / "node1" / "dump.txt").read_text())[1:]
    (printed,) = (one for one in sections if "Log starting offset" in one)
    begin, *batches = re.split(r"(?m)^(?=baseOffset: )", printed)
    logs = [
        read_logs(node, root / f"node{node}" / "logs" / "distribution", layout_of(DEFAULT_PATTERN)) for node in NODES
    ]
    for number, snapshot in enumerate(one for one in sections if one != printed):
        (end,) = re.findall(r"Snapshot end offset: (\d+)", snapshot)
        later = [one for one in batches if int(one.split()[1]) >= int(end)]
        text = tmp_path / f"dump-{number}.txt"
        text.write_text("".join([begin, *later, snapshot]))
        out = LocalDirectory(tmp_path / f"out-{number}")
        done = Import([open_dump([text])], "c", logs=logs, trust_tail=True).write(out)
        spans = [span for clock in done.learnt.clocks.values() for span in clock.spans]
        assert all(span.low_ms <= 0 <= span.high_ms for span in spans)
        assert sum(one.lines for forms in done.left_out.values() for one in forms.values()) > 0
        assert {form for forms in done.left_out.values() for form in forms} <= {
            "Shrinking ISR", "ISR updated", "Leader starts",
        }  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", PATTERNS)
def test_every_layout_gives_the_facts_of_the_distributions(release: str, name: str, tmp_path: Path) -> None:
    """One process wrote the same lines in each of them; where seconds are whole, the times are those seconds."""
    expected = facts_of(of_distribution(release, tmp_path))
    log = read_logs(1, tmp_path / "node1" / "logs" / f"{name}.log", layout_of(PATTERNS[name]))
    if name == "strimzi":
        expected = {(at_ms // 1_000 * 1_000, fact) for at_ms, fact in expected}
        assert {one.coarse_ms for one in log.facts} == {1_000}
    assert facts_of(log) == expected
    assert (log.unknown, log.other_layout) == (Counter(), None)


AT = "2027-01-01T00:00:00.123456789Z"
"""When a container's runtime took a line, which is not a time of the line's."""


def parts(line: str, size: int = 70) -> str:
    """A line as Kubernetes' runtimes cut it; they do so behind 16 KiB."""
    several = [line[at : at + size] for at in range(0, len(line), size)] or [""]
    tagged = [(one, "F" if place == len(several) - 1 else "P") for place, one in enumerate(several)]
    return "\n".join(f"{AT} stdout {tag} {one}" for one, tag in tagged)


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker": lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": AT}),
    "CRI": lambda line: f"{AT} stdout F {line}",
    "CRI, in parts": parts,
    "kubectl --timestamps": lambda line: f"{AT} {line}",
    "kubectl --prefix": lambda line: f"[pod/kafka-0/kafka] {line}",
    "docker compose": lambda line: f"kafka-1  | {line}",
    "stern": lambda line: f"kafka-0 kafka {line}",
    "stern -o json": lambda line: json.dumps({"message": line, "nodeName": "n", "podName": "kafka-0"}),
    "journalctl": lambda line: f"Jan 01 00:00:00 host kafka[812]: {line}",
    "journalctl -o short-iso": lambda line: f"2027-01-01T00:00:00+0000 host kafka[812]: {line}",
    "journalctl -o json": lambda line: json.dumps({"MESSAGE": line, "__REALTIME_TIMESTAMP": "1798761600000000"}),
    "journalctl -o json, coloured": lambda line: '{"MESSAGE":%s}' % [*f"\x1b[0m{line}".encode()],
    "a collector": lambda line: json.dumps({"date": 1798761600.1, "log": line, "stream": "stdout"}),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("name", ["distribution", "strimzi", "confluent", "ecs"])
def test_what_a_runtime_writes_around_a_line_is_taken_off(wrapped: str, name: str, tmp_path: Path) -> None:
    """Every runtime's form gives the facts of the bare lines, settings within their block too, at the lines' times."""
    files = files_of("4.1.1")
    path, pattern = f"node1/logs/{name}.log", PATTERNS.get(name, DEFAULT_PATTERN)
    path = "node1/logs/distribution/server.log" if name == "distribution" else path
    lines = files[path].decode().splitlines()
    (tmp_path / "bare.log").write_text("\n".join(lines))
    (tmp_path / "0.log").write_text("\n".join(map(WRAPPED[wrapped], lines)))
    bare, held = (read_logs(1, tmp_path / each, layout_of(pattern)) for each in ("bare.log", "0.log"))
    assert len(bare.facts) > 20
    assert [(one.at_ms, one.fact) for one in held.facts] == [(one.at_ms, one.fact) for one in bare.facts]
    assert (held.unknown, held.other_layout) == (Counter(), None)


REDIRECTED: dict[str, Callable[[str], bytes]] = {
    "PowerShell": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "cmd": lambda text: text.replace("\n", "\r\n").encode(),
    "gz": lambda text: gzip.compress(text.encode()),
    "bz2": lambda text: bz2.compress(text.encode()),
    "xz": lambda text: lzma.compress(text.encode()),
    "PowerShell, gz": lambda text: gzip.compress(text.encode("utf-16")),
}


@pytest.mark.parametrize("shell", REDIRECTED)
def test_any_shell_and_any_packing_gives_the_same_facts(shell: str, tmp_path: Path) -> None:
    """Encodings, line ends and packing are seen by the bytes, not by the file's name."""
    text = files_of("4.1.1")["node1/logs/distribution/server.log"].decode()
    (tmp_path / "bare.log").write_text(text)
    (tmp_path / "console.txt").write_bytes(REDIRECTED[shell](text))
    bare, held = (read_logs(1, tmp_path / each, layout_of(DEFAULT_PATTERN)) for each in ("bare.log", "console.txt"))
    assert facts_of(held) == facts_of(bare)


@pytest.mark.parametrize("begin", [b"\x28\xb5\x2f\xfd", b"PK\x03\x04"])
def test_a_packing_that_is_not_read_is_named(begin: bytes, tmp_path: Path) -> None:
    """A file of zstd or zip is not taken for a text without a line that matters."""
    (tmp_path / "server.log.1").write_bytes(begin + bytes(100))
    with pytest.raises(
        Unreadable, match=r"server\.log\.1 is packed by zstd or zip, which are not read; unpack it first"
    ):
        read_logs(1, tmp_path, layout_of(DEFAULT_PATTERN))


def test_the_files_of_a_container_are_parts_of_one_log(tmp_path: Path) -> None:
    """A folder as Kubernetes rotates it has no server.log: its files are read in order, also within a block."""
    lines = files_of("4.1.1")["node1/logs/strimzi.log"].decode().splitlines(keepends=True)
    half = len(lines) // 2
    (tmp_path / "whole.log").write_text("".join(lines))
    folder = tmp_path / "kafka"
    folder.mkdir()
    held = [*map(WRAPPED["CRI"], lines)]
    (folder / "0.log").write_text("".join(held[half:]))
    (folder / "0.log.20270101-000000.gz").write_bytes(gzip.compress("".join(held[:half]).encode()))
    layout = layout_of(PATTERNS["strimzi"])
    parts, whole = read_logs(1, folder, layout), read_logs(1, tmp_path / "whole.log", layout)
    assert [(one.at_ms, one.fact) for one in parts.facts] == [(one.at_ms, one.fact) for one in whole.facts]
    assert parts.files == 2


def test_an_interval_of_whole_seconds_is_a_second_wider_on_both_sides(tmp_path: Path) -> None:
    """What Strimzi's layout cuts off a time is added to the interval of the clock, which holds the truth."""
    root = unpack("4.1.1", tmp_path)
    copies = [open_copy(root / f"node{node}" / "data") for node in NODES]
    found: dict[str, Any] = {}
    for name, pattern in (("strimzi", PATTERNS["strimzi"]), ("confluent", PATTERNS["confluent"])):
        logs = [read_logs(1, root / "node1" / "logs" / f"{name}.log", layout_of(pattern))]
        done = Import(copies, "c", logs=logs, trust_tail=True).write(LocalDirectory(root / name))
        found[name] = done.learnt.clocks[1].spans
    assert len(found["strimzi"]) == len(found["confluent"]) > 0
    for coarse, exact in zip(found["strimzi"], found["confluent"], strict=True):
        assert coarse.low_ms <= exact.low_ms and coarse.high_ms >= exact.high_ms
        assert coarse.high_ms - coarse.low_ms >= 1_000
