"""The text of kafka-dump-log as a source: the same events as the file that it was printed of."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import pytest
from run_a_files import RUN_A

from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files, read_rows
from strandline_kafka.metadata.dump_log import open_dump
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import Copy, open_copy
from strandline_kafka.metadata.wire import Unreadable

Row = dict[str, Any]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """What Kafka's tool printed of the log of run A."""
    path = tmp_path / "dump.txt"
    path.write_bytes(lzma.decompress((RUN_A / "dump-log.txt.xz").read_bytes()))
    return path


def rows_of(copy: Copy, out: Path) -> list[Row]:
    Import([copy], "c", trust_tail=True).write(LocalDirectory(out))
    place = LocalDirectory(out)
    rows = [row for file in find_files(place, "c") for row in read_rows(file.path, place.get(f"c/v1/{file.path}"))]
    return sorted(rows, key=lambda row: row["seq"])


def test_the_text_becomes_the_same_events(run_a_node: Any, text: Path, tmp_path: Path) -> None:
    """Up to where the text ends, every event is that of the file: number, time, causes, what is inferred."""
    from_text = rows_of(open_dump([text]), tmp_path / "text")
    from_file = rows_of(open_copy(run_a_node(1)), tmp_path / "file")
    assert len(from_text) > 150
    # The last row of the text is the end of its emitter.
    assert from_text[:-1] == from_file[: len(from_text) - 1]


def test_the_text_alone_proves_nothing(text: Path, tmp_path: Path) -> None:
    """A text names no node, so that of three voters none is known to hold it."""
    assert Import([open_dump([text])], "c").result.proof.proved_end == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda lines: [line.replace("isvalid: true", "isvalid: false") for line in lines],
            "line 3: Kafka's tool says",
        ),
        (lambda lines: lines[:5] + lines[7:], "the batch at offset 1 has 7 records of 9"),
        (lambda lines: [line.replace("payload: {", "payload: {{") for line in lines], "line 6, offset 1: Expecting"),
        (lambda lines: [line.replace(" payload: ", " ") for line in lines], "line 6 is no record"),
        (lambda lines: lines[3:], "line 1 is a record in front of its batch"),
        (lambda lines: [line.replace('"isr":', '"rsi":') for line in lines], "Partition version 2 lacks isr"),
    ],
)
def test_a_text_that_is_not_whole_is_named(text: Path, tmp_path: Path, change: Any, said: str) -> None:
    """A batch that is not valid, missing records, or lines of another tool end the import with file and line."""
    text.write_text("".join(change(text.read_text().splitlines(keepends=True))))
    with pytest.raises(Unreadable, match=said) as refused:
        rows_of(open_dump([text]), tmp_path / "out")
    assert str(text) in str(refused.value)
