"""Records that run A lacks, each as Kafka's controller writes it: causes, ELRs, orders, and a clock that goes back."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from metadata_log_bytes import HEAD, START_MS, TOPIC, batch, broker, change, framed, ids, node, tagged, text
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.export.destination import LocalDirectory
from strandline.export.reading import find_files, read_rows
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import open_copy

DIRECTORY = b"\x02" + bytes(range(16))
"""One directory of logs."""


def rows_of(tmp_path: Path, *batches: bytes) -> list[dict[str, Any]]:
    """The events behind those of `HEAD`, in order."""
    root = node(tmp_path, 1, *HEAD, *batches)
    Import([open_copy(root)], "c").write(LocalDirectory(tmp_path / "out"))
    place = LocalDirectory(tmp_path / "out")
    rows = [row for file in find_files(place, "c") for row in read_rows(file.path, place.get(f"c/v1/{file.path}"))]
    rows.sort(key=lambda row: row["seq"])
    return [
        row for row in rows if row["ts_wall_us"] >= (START_MS + 500) * 1_000 and "HEARTBEAT" not in row["event_type"]
    ]


def directories(broker_id: int) -> bytes:
    """A change of a registration that names the directories that are left."""
    return framed(17, 3, struct.pack(">iq", broker_id, 1) + tagged(t2=DIRECTORY))


@pytest.mark.parametrize(
    ("reason", "cause"), [(broker(2), "unclean_registration"), (directories(2), "offline_directory")]
)
def test_a_removal_before_a_registration_has_its_cause(tmp_path: Path, reason: bytes, cause: str) -> None:
    """The controller removes a broker that was not stopped in order, or lost a directory, before it says so."""
    rows = rows_of(tmp_path, batch(5, broker(2)), batch(6, change(t0=ids(1, 3)), reason))
    (removal,) = (row for row in rows if row["event_type"] == "ISR_CHANGE")
    assert (removal["cause"], removal["initiator"]) == (cause, "controller")


def test_the_order_of_an_isr_is_no_change(tmp_path: Path) -> None:
    """An ISR is a set: the same members in another order are no change of it (A5)."""
    rows = rows_of(tmp_path, batch(5, change(t0=ids(3, 2, 1))))
    assert [(row["event_type"], row["partition_epoch"]) for row in rows] == [("CONFIG_CHANGE", 1)]


def test_an_elr_is_cleared_without_a_new_epoch(tmp_path: Path) -> None:
    """The record empties the ELR of a topic's partitions, and leaves their partition epochs (A6)."""
    shrink = framed(5, 2, struct.pack(">i", 0) + TOPIC + tagged(t0=ids(1, 2), t6=ids(3)))
    rows = rows_of(tmp_path, batch(5, shrink), batch(6, framed(28, 0, text("t") + b"\0")))
    seen = [(row["event_type"], row["elr"], row["partition_epoch"]) for row in rows]
    assert seen == [("ISR_CHANGE", [3], 1), ("STATE_SNAPSHOT", [], 1)]


def test_a_clock_that_goes_back_leaves_an_order(tmp_path: Path) -> None:
    """The time of day is the record's; the monotonic time never falls within a reign (A16)."""
    times = (START_MS + 9_000, START_MS + 6_000, START_MS + 9_500)
    isrs = (ids(1, 3), ids(1, 2, 3), ids(1, 2))
    changes = [batch(5 + n, change(t0=isr), at_ms=at) for n, (isr, at) in enumerate(zip(isrs, times, strict=True))]
    rows = [row for row in rows_of(tmp_path, *changes) if row["event_type"] == "ISR_CHANGE"]
    assert [row["ts_wall_us"] // 1_000 - START_MS for row in rows] == [9_000, 6_000, 9_500]
    assert [row["ts_mono_us"] // 1_000 - START_MS for row in rows] == [9_000, 9_000, 9_500]
    assert {row["ext"]["clock"] for row in rows} == {"wall"}


def test_nothing_is_written_into_kafkas_directories(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """Logs of controllers and brokers and checkpoint files are as they were, to the nanosecond (A35)."""
    own = [run_a_node(1), run_a_node(2), run_a_logs(1), run_a_logs(1).parent]

    def state() -> dict[Path, tuple[int, int]]:
        paths = {path for root in own for path in (root, *root.rglob("*"))}
        return {path: ((found := path.stat()).st_mtime_ns, found.st_size) for path in paths}

    before = state()
    given = [
        "--metadata-log",
        own[0],
        "--metadata-log",
        own[1],
        "--logs",
        f"n1={own[2]}",
        "--partitions",
        f"n1={own[3]}",
    ]
    ran = CliRunner().invoke(app, ["analytics", "import", "kafka", *map(str, given), "--out", str(tmp_path / "export")])
    assert ran.exit_code == 0, ran.stderr
    assert state() == before


def test_without_a_metadata_log_nothing_is_imported(run_a_logs: Any, tmp_path: Path) -> None:
    """What other sources say is placed by the metadata log, so that they are refused without it (A1)."""
    given = ["--logs", f"n1={run_a_logs(1)}", "--out", str(tmp_path / "export")]
    ran = CliRunner().invoke(app, ["analytics", "import", "kafka", *given])
    assert ran.exit_code == 2
    assert "--metadata-log: name the log.dir of a controller" in " ".join(ran.stderr.replace("│", " ").split())
    assert not (tmp_path / "export").exists()
