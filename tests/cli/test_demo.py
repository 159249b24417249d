"""The demo: its input and ledgers, the order of its events, its final checks, and its report."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.data_directories import data_directory

from strandline.cli.demo import story
from strandline.cli.demo.ledgers import LINE_NUMBER, AckLedger, AckReport, ReadLedger, ReadReport, Silence, tell
from strandline.cli.demo.load import library_sources, open_corpus
from strandline.cli.demo.screen import PlainScreen, Scene, progress_sentence
from strandline.cli.demo.story import Story
from strandline.cli.demo.verify import Check, DemoVerdict, Evidence, agreement, checks
from strandline.cli.demo.watch import Election
from strandline.cli.failures import CommandFailed


def read_ledger(lines: int = 4, partitions: int = 2) -> ReadLedger:
    """A ledger that spools into memory."""
    return ReadLedger(lines=lines, spools=[io.BytesIO() for _ in range(partitions)])


def test_a_corpus_is_counted_and_hashed(tmp_path: Path) -> None:
    """Lines keep their line feeds; a last line without one is a line."""
    path = tmp_path / "text"
    path.write_bytes(b"one\n\nthree")
    corpus = open_corpus(path, partitions=2)

    assert (corpus.lines, corpus.size_bytes) == (3, 10)
    assert corpus.sha256 == hashlib.sha256(b"one\n\nthree").hexdigest()
    assert list(corpus.read()) == [b"one\n", b"\n", b"three"]
    assert [corpus.lines_of(0), corpus.lines_of(1)] == [2, 1]


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "empty"), (b"a\n" + b"x" * 1_000_001, "line 2 has 1,000,001 bytes")]
)
def test_a_corpus_that_cannot_be_sent_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """An empty file and a line that fits into no batch are reported before anything starts."""
    path = tmp_path / "text"
    path.write_bytes(content)

    with pytest.raises(CommandFailed, match=said):
        open_corpus(path, partitions=2)


def test_library_sources_are_in_order(tmp_path: Path) -> None:
    """The default input is the same on every run: sorted, without installed packages."""
    for name in ("b.py", "a.py", "site-packages/c.py", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    assert [path.name for path in library_sources(tmp_path)] == ["a.py", "b.py"]


def ack_ledger(*lines_of: int) -> AckLedger:
    """A ledger whose first record was sent at 1,000 ms."""
    ledger = AckLedger(lines_of=list(lines_of))
    ledger.begin(1_000.0)
    return ledger


@pytest.mark.parametrize(
    ("second", "missing", "twice", "not_in_order"),
    [((3, 2), 0, 0, 0), ((1, 2), 2, 2, 1), ((4, 1), 1, 0, 1)],
    ids=["follows", "acknowledged twice", "a hole"],
)
def test_acks_cover_each_offset_once(second: tuple[int, int], missing: int, twice: int, not_in_order: int) -> None:
    """Behind offsets 0 to 2 a batch that begins below the end was acknowledged before; one that begins beyond it means
    records of another producer, or a copy without an acknowledgement."""
    ledger = ack_ledger(5)
    ledger.acknowledge(0, 0, 3, 1_010.0)
    ledger.acknowledge(0, *second, 1_020.0)

    assert (ledger.missing, ledger.twice, ledger.not_in_order) == (missing, twice, not_in_order)
    assert (ledger.acked, ledger.ends) == (3 + second[1], [sum(second)])


def test_refused_lines_are_missing() -> None:
    """Lines that were given up are counted, and never as acknowledged."""
    ledger = ack_ledger(5)
    ledger.refuse(2)

    assert (ledger.refused, ledger.missing) == (2, 5)


def test_silences_are_kept_with_their_times() -> None:
    """Waits of 100 ms and more are stored, from the first send on; shorter ones are not."""
    ledger = ack_ledger(5, 5)
    for partition, now_ms in ((0, 1_010.0), (0, 3_010.0), (1, 1_090.0)):
        ledger.acknowledge(partition, None, 1, now_ms)

    assert ledger.silences == [Silence(0, 1_010.0, 3_010.0)]
    assert AckReport.of(ledger).longest_silence_ms == 2_000.0


def test_reports_survive_their_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The parent reads exactly what the process reported."""
    ledger = ack_ledger(5)
    ledger.acknowledge(0, 0, 3, 1_500.0)
    acked = AckReport.of(ledger, began_ms=1_000.0, at_ms=1_600.0, done=True)
    tell(acked)
    read = ReadReport.of(read_ledger(), done=False)
    tell(read)
    first, second = capsys.readouterr().out.encode().splitlines()

    assert AckReport.parse(first) == acked
    assert ReadReport.parse(second) == read
    assert acked.longest_silence_ms == 500.0


def test_reading_in_order_once() -> None:
    """Every line once, in its place and in order gives no fault."""
    ledger = read_ledger()
    for line in range(4):
        ledger.take(line % 2, line // 2, LINE_NUMBER.pack(line), b"x\n")

    assert (ledger.missing, ledger.twice, ledger.not_in_order, ledger.strangers) == (0, 0, 0, 0)


def test_reading_sees_what_is_wrong() -> None:
    """A repeated record, a record out of order and one that does not belong there are three different faults."""
    ledger = read_ledger()
    for offset, line in ((1, 2), (0, 0), (0, 0), (1, 3)):
        ledger.take(0, offset, LINE_NUMBER.pack(line), b"x\n")
    ledger.take(1, 9, LINE_NUMBER.pack(19), b"x\n")
    ledger.take(1, 0, None, b"x\n")

    assert (ledger.twice, ledger.not_in_order, ledger.strangers, ledger.missing) == (1, 3, 3, 2)


def test_one_failed_check_fails_the_verdict() -> None:
    """A verdict passes only if there are checks and all of them held."""
    held, broken = Check("good", True), Check("bad", False)

    passed = [DemoVerdict(checks=checks).passed for checks in ((held, held), (held, broken), ())]
    assert passed == [True, False, False]


async def test_a_kill_without_an_election_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo goes on to the killed node's return only once every partition that it led has a new leader."""
    happened: list[str] = []

    async def until(*_: Any) -> bool:
        return False

    async def start_node(node_id: int) -> None:
        happened.append(f"node-{node_id} is started")

    monkeypatch.setattr(story, "_AHEAD_S", 0)
    nodes = {
        node_id: SimpleNamespace(pid=node_id, pause=lambda: None, resume=lambda: happened.append("resumed"))
        for node_id in (1, 2, 3)
    }
    cluster: Any = SimpleNamespace(
        nodes=nodes, kill_node=lambda node_id: happened.append(f"node-{node_id} is killed"), start_node=start_node
    )
    watch: Any = SimpleNamespace(leads_most=lambda: 2, led_by=lambda _: [0], until=until)
    load: Any = SimpleNamespace(acks=SimpleNamespace(acked=0, is_held=True), until=until)
    corpus: Any = SimpleNamespace(lines=4, partitions=1)
    screen: Any = SimpleNamespace(tell=lambda *_, **__: None)
    scene: Any = SimpleNamespace(services={})

    with pytest.raises(CommandFailed, match="no new leader"):
        await Story(corpus, cluster, screen, scene)._crash_and_return(load, watch)

    assert happened == ["node-2 is killed", "resumed", "resumed"]


LINES = [b"one\n", b"two\n", b"three"]


def evidence(
    directory: Path,
    *,
    acked: Sequence[int] = (0, 1, 2),
    consumed: Sequence[int] = (0, 1, 2),
    content: Sequence[bytes] = LINES,
    logs: Sequence[Sequence[bytes]] = (LINES, LINES),
    hw: int = 3,
) -> Evidence:
    """A run of three lines through one partition, correct unless given otherwise."""
    (directory / "input").write_bytes(b"".join(LINES))
    acks = AckLedger(lines_of=[3])
    for offset in acked:
        acks.acknowledge(0, offset, 1, 0.0)
    reads = ReadLedger(lines=3, spools=[io.BytesIO()])
    for line in consumed:
        reads.take(0, line, LINE_NUMBER.pack(line), content[line])
    spool = directory / "consumed-0.txt"
    spool.write_bytes(b"".join(content[line] for line in consumed))
    directories = [
        data_directory(directory / f"node-{number}", number, [list(log)], hw) for number, log in enumerate(logs, 1)
    ]
    return Evidence(
        corpus=open_corpus(directory / "input", partitions=1),
        acks=AckReport.of(acks, began_ms=0.0, at_ms=0.0, done=True),
        reads=ReadReport.of(reads, done=True),
        spools=[spool],
        data_directories=directories,
        topic="orders",
    )


READING = ["every line consumed once", "in order, per partition", "contents equal to the file"]
CHANGED = [b"one\n", b"tWo\n", b"three"]


@pytest.mark.parametrize(
    ("given", "failed"),
    [
        ({}, []),
        ({"acked": (0, 1)}, ["every line acknowledged once"]),
        ({"consumed": (0, 2)}, READING),
        ({"consumed": (0, 1, 1, 2)}, READING),
        ({"content": CHANGED}, ["contents equal to the file"]),
        ({"logs": (LINES, CHANGED)}, ["2 logs byte-equal up to the HW"]),
        ({"logs": ([*LINES, b"three"],) * 2, "hw": 4}, ["HW covers every record, and no other"]),
    ],
    ids=["sound", "an ack lost", "a record lost", "read twice", "one byte changed", "diverged logs", "one record more"],
)
def test_each_fault_fails_its_checks_and_no_other(tmp_path: Path, given: dict[str, Any], failed: list[str]) -> None:
    """Acknowledged, consumed, in order, equal contents, equal logs, nothing else."""
    found = [check.sentence for check in checks(evidence(tmp_path, **given)) if not check.held]

    assert found == failed


def test_plain_progress_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal the narration and the progress are plain lines."""
    scene = Scene(
        lines=200, acked=100, acked_bytes=5 << 20, consumed=50, rate_bytes_s=2 << 20, services={"node-1": "down"}
    )
    with PlainScreen(scene) as screen:
        screen.tell("kill -9", "node-1")

    assert progress_sentence(scene) == "acked 50 % (100 lines, 5.0 MiB, 2.0 MiB/s), consumed 25 %; node-1 down"
    assert capsys.readouterr().out.endswith("s  kill -9     node-1\n")


def report_of_story(directory: Path) -> Any:
    """A demo that saw one failover of p1, no acks from 10 s to 10.3 s, one shrink, two expands, and 7 records cut."""
    cut = {"event_type": "TRUNCATION", "node_id": 1, "incarnation": 2, "seq": 1, "topic_id": "T", "partition": 1,
           "from_leo": 17, "to_leo": 10}  # fmt: skip
    (directory / "events.jsonl").write_text(json.dumps(cut) + "\n")
    watch = SimpleNamespace(
        elections=[Election(partition=1, old=1, new=2, leader_epoch=1, at_ms=10_200.0)],
        shrinks=1,
        expands=2,
        skipped=0,
        partitions=[SimpleNamespace(tp=SimpleNamespace(topic_id="T"))],
    )
    load = SimpleNamespace(acks=SimpleNamespace(silences=(Silence(1, 10_000.0, 10_300.0),)))
    return SimpleNamespace(watch=watch, load=load, cluster=SimpleNamespace(directory=directory))


def figures(*, fence_ms: float = 10_100.0, start_ms: float = 10_200.0, **other: Any) -> dict[str, Any]:
    """The figures of a report that agrees, except for ``other``; times of the monotonic clock."""
    to_wall_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000
    failover = {
        "partition": 1,
        "fence_us": fence_ms * 1000 + to_wall_us,
        "epoch_start_us": start_ms * 1000 + to_wall_us,
    }
    return {"elections": 1, "shrinks": 1, "expands": 2, "truncated_records": 7, "failovers": [failover]} | other


def disagreeing(directory: Path, **other: Any) -> list[Check]:
    """The checks of the report that do not hold."""
    return [check for check in agreement(report_of_story(directory), figures(**other)) if not check.held]


def test_equal_figures_agree(tmp_path: Path) -> None:
    """Every check holds where demo and report saw the same."""
    assert disagreeing(tmp_path) == []


@pytest.mark.parametrize("name", ["elections", "shrinks", "expands", "truncated_records"])
def test_a_count_that_differs_fails(tmp_path: Path, name: str) -> None:
    """One more or one less is a mismatch, and so is an unknown count."""
    for wrong in (figures()[name] + 1, figures()[name] - 1, None):
        (failed,) = disagreeing(tmp_path, **{name: wrong})

        assert name.replace("_", " ") in failed.sentence


@pytest.mark.parametrize(("fence_ms", "start_ms"), [(9_990.0, 10_200.0), (10_100.0, 10_310.0)])
def test_a_failover_outside_of_the_silence_fails(tmp_path: Path, fence_ms: float, start_ms: float) -> None:
    """No node was allowed to give an ack between fence and epoch start."""
    (failed,) = disagreeing(tmp_path, fence_ms=fence_ms, start_ms=start_ms)

    assert "not p1" in failed.shown


def test_a_partition_without_a_noted_silence_is_not_judged(tmp_path: Path) -> None:
    """Nothing was late there, so there is no gap to lie in; a late ack of another partition proves nothing."""
    short = agreement(report_of_story(tmp_path), figures(fence_ms=20_000.0, start_ms=20_010.0))

    assert [check.sentence for check in short if "acks" in check.sentence] == []


def test_no_failover_and_no_report_fail(tmp_path: Path) -> None:
    """A report without the failover, or none at all, proves nothing."""
    assert disagreeing(tmp_path, failovers=[])
    assert [check.held for check in agreement(report_of_story(tmp_path), {"trouble": "out of memory"})] == [False]
