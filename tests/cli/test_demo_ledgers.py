"""The demo's input and its two ledgers: what they count, and that they miss nothing."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest

from strandline.cli.demo.ledgers import LINE_NUMBER, AckLedger, AckReport, ReadLedger, ReadReport, Silence, tell
from strandline.cli.demo.load import library_sources, open_corpus
from strandline.cli.demo.verify import Check, Verdict
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


def test_acks_cover_each_offset_once() -> None:
    """Batches that follow each other from offset 0 give no fault."""
    ledger = ack_ledger(5)
    ledger.acknowledge(0, 0, 3, 1_010.0)
    ledger.acknowledge(0, 3, 2, 1_020.0)

    assert (ledger.acked, ledger.missing, ledger.twice, ledger.not_in_order, ledger.ends) == (5, 0, 0, 0, [5])


def test_an_offset_acknowledged_twice_is_seen() -> None:
    """A batch that begins below the end was acknowledged before, and another line is missing for it."""
    ledger = ack_ledger(5)
    ledger.acknowledge(0, 0, 3, 1_010.0)
    ledger.acknowledge(0, 1, 2, 1_020.0)

    assert (ledger.twice, ledger.missing, ledger.not_in_order) == (2, 2, 1)


def test_a_hole_between_acks_is_seen() -> None:
    """A batch that begins beyond the end means records of another producer, or a copy without an acknowledgement."""
    ledger = ack_ledger(5)
    ledger.acknowledge(0, 0, 2, 1_010.0)
    ledger.acknowledge(0, 3, 3, 1_020.0)

    assert ledger.not_in_order == 1


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
    assert ledger.longest_silence_ms() == 2_000.0


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

    assert Verdict(checks=(held, held)).exit_code == 0
    assert Verdict(checks=(held, broken)).exit_code == 1
    assert Verdict(checks=()).exit_code == 1
