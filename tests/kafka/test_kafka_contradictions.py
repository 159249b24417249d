"""What Kafka's own controller would stop at: an import says it, or ends at it, and never passes over it in silence."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from metadata_log_bytes import (
    FENCED,
    HEAD,
    NO_OP,
    TOPIC,
    batch,
    broker,
    change,
    feature,
    framed,
    ids,
    node,
    partition,
    registration,
    tagged,
    text,
    topic,
    voters,
)  # fmt: skip
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.export.destination import LocalDirectory
from strandline_kafka.metadata.importing import Import, Imported
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.wire import Unreadable

BEGINS, ENDS = framed(23, 0, tagged()), framed(24, 0, tagged())
OTHER = bytes(16)


def imported(tmp_path: Path, batches: Iterable[bytes], first: int = 0) -> Imported:
    root = node(tmp_path, 1, *batches, first=first)
    return Import([open_copy(root)], "c", trust_tail=True).write(LocalDirectory(tmp_path / "out"))


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([change(t0=ids(1)).replace(TOPIC, OTHER)], "changes partition 0 of topic 0{8}-.*, which no record made"),
        ([partition(1, 2, 3).replace(TOPIC, OTHER)], "is of topic 0{8}-.*, which no record made"),
        ([framed(9, 0, OTHER + b"\0")], "removes topic 0{8}-.*, which no record made"),
        ([topic().replace(TOPIC, OTHER)], "makes a second topic of the name t"),
        ([registration(2, t0=FENCED)], "changes the registration of broker 2, which never registered"),
        ([framed(1, 0, struct.pack(">iq", 2, 1) + b"\0")], "changes the registration of broker 2, which never"),
        (
            [broker(2), framed(7, 0, struct.pack(">iq", 2, 9) + b"\0")],
            "of broker epoch 9 of broker 2, which .* with 1",
        ),
        ([BEGINS, BEGINS], "BeginTransaction stands within a transaction"),
        ([ENDS], "EndTransaction stands without a BeginTransaction"),
        ([framed(5, 7, b"\0")], "PartitionChange version 7 is of a Kafka newer than 4.3"),
    ],
)
def test_a_record_that_contradicts_those_before_it_ends_the_import(
    records: list[bytes], said: str, tmp_path: Path
) -> None:
    """Where nothing is missing before it, what no controller could replay is refused with its offset."""
    with pytest.raises(Unreadable, match=said) as refused:
        imported(tmp_path, [*HEAD, batch(5, *records)])
    assert "offset 5" in str(refused.value) or "offset 6" in str(refused.value)


@pytest.mark.parametrize("record", [change(t0=ids(1)), registration(2, t0=FENCED), ENDS])
def test_a_log_that_begins_later_may_name_what_it_does_not_hold(record: bytes, tmp_path: Path) -> None:
    """What was made before the first offset that is kept is in no record, and contradicts nothing."""
    log = [voters(40, 1), batch(41, feature()), batch(42, record), batch(43, NO_OP)]
    assert imported(tmp_path, log, first=40).records == 4


@pytest.mark.parametrize(
    ("name", "level", "said"),
    [
        ("metadata.version", 31, "1 of feature metadata.version level 31"),
        ("moon.version", 1, "1 of feature moon.version level 1"),
        ("metadata.version", 30, None),
        ("moon.version", 0, None),
    ],
)
def test_a_feature_that_is_not_known_is_said(name: str, level: int, said: str | None, tmp_path: Path) -> None:
    """A level that no released controller has is counted, named, and a gap of the export; one that is known is not."""
    root = node(tmp_path, 1, *HEAD, batch(5, framed(12, 0, text(name) + struct.pack(">h", level) + b"\0")))
    given = ["--metadata-log", root, "--trust-tail", "--out", tmp_path / "out"]
    ran = CliRunner().invoke(app, ["analytics", "import", "kafka", *map(str, given)])
    assert ran.exit_code == 0
    assert (said or "gaps of the export") in ran.stderr or said is None
    assert ("gaps of the export" in ran.stderr) == (said is not None)
