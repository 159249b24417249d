"""The demo's final checks: each holds on a correct run and fails on the fault it checks for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cli.data_directories import data_directory

from strandline.cli.demo.ledgers import LINE_NUMBER, AckLedger, AckReport, ReadLedger, ReadReport
from strandline.cli.demo.load import open_corpus
from strandline.cli.demo.screen import PlainScreen, Scene, progress_sentence
from strandline.cli.demo.verify import Evidence, checks

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


def failed(found: Evidence) -> list[str]:
    """The checks that failed."""
    return [check.sentence for check in checks(found) if not check.held]


def test_a_sound_run_passes_every_check(tmp_path: Path) -> None:
    """Acknowledged, consumed, in order, equal contents, equal logs, nothing else."""
    assert failed(evidence(tmp_path)) == []


def test_a_lost_acknowledgement_is_seen(tmp_path: Path) -> None:
    """A line without an acknowledgement fails the first check only."""
    assert failed(evidence(tmp_path, acked=(0, 1))) == ["every line acknowledged once"]


def test_a_lost_record_is_seen(tmp_path: Path) -> None:
    """A line that was never read fails reading, order and contents."""
    found = failed(evidence(tmp_path, consumed=(0, 2)))

    assert found == ["every line consumed once", "in order, per partition", "contents equal to the file"]


def test_a_doubled_record_is_seen(tmp_path: Path) -> None:
    """A line read twice fails reading, order and contents."""
    found = failed(evidence(tmp_path, consumed=(0, 1, 1, 2)))

    assert found == ["every line consumed once", "in order, per partition", "contents equal to the file"]


def test_a_changed_record_is_seen(tmp_path: Path) -> None:
    """One changed byte fails the hash and nothing else."""
    assert failed(evidence(tmp_path, content=[b"one\n", b"tWo\n", b"three"])) == ["contents equal to the file"]


def test_diverged_logs_are_seen(tmp_path: Path) -> None:
    """Logs that differ below the HW fail the comparison."""
    found = failed(evidence(tmp_path, logs=(LINES, [b"one\n", b"tWo\n", b"three"])))

    assert "2 logs byte-equal up to the HW" in found


def test_a_record_more_in_the_logs_is_seen(tmp_path: Path) -> None:
    """A settled record that is no line of the file is a duplicate without an acknowledgement."""
    found = failed(evidence(tmp_path, logs=([*LINES, b"three"],) * 2, hw=4))

    assert found == ["HW covers every record, and no other"]


def test_plain_progress_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal the narration and the progress are plain lines."""
    scene = Scene(
        lines=200, acked=100, acked_bytes=5 << 20, consumed=50, rate_bytes_s=2 << 20, services={"node-1": "down"}
    )
    with PlainScreen(scene) as screen:
        screen.tell("kill -9", "node-1")

    assert progress_sentence(scene) == "acked 50 % (100 lines, 5.0 MiB, 2.0 MiB/s), consumed 25 %; node-1 down"
    assert capsys.readouterr().out.endswith("s  kill -9     node-1\n")
