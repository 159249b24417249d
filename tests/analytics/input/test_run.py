"""The output of a run: closed hours, each from its own files, each whole, and nothing else is changed.

One history over one output, played once: an hour that was open, the same run again, a part of it elsewhere, a file that
came late, a run that is interrupted. The tests check the state after each step.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from written_export import HOUR_US, Emitter, Row, write_export

from strandline.export import layout
from strandline_analytics.jobs import parquet_results, run as job
from strandline_analytics.jobs.ask import Question, chosen
from strandline_analytics.jobs.coverage import GRACE_US, HourState
from strandline_analytics.jobs.parquet_results import UNFINISHED, HadoopMover, ParquetResults
from strandline_analytics.jobs.results import FOLDER
from strandline_analytics.jobs.run import Written

# Some dozens of queries, each of which takes a second on a loaded two-core machine.
pytestmark = pytest.mark.timeout(600)

HOUR = 498_662
"""2026-11-20T14Z, counted from 1970."""
START_US = HOUR * HOUR_US
MINUTE_US = 60_000_000
STATS = ("s08", "s10")
"""Of transitions only, which cost least; `test_commands_on_data.py` runs one that reads samples as well."""
_STATE = {"leader_epoch": 0, "new_leader": 1, "new_isr": [1, 2, 3], "replicas": [1, 2, 3], "min_isr": 2, "elr": []}


def at(minute: float) -> int:
    """This many minutes after 14:00."""
    return START_US + round(minute * MINUTE_US)


def reported_by_controller() -> list[Row]:
    """Three hours, the last still in progress: p0 loses a replica within 14, p1 one over the end of 14."""
    tell, meta, rows = Emitter("north", -1), 0, []

    def decide(minute: float, kind: str, partition: int, **said: Any) -> None:
        nonlocal meta
        meta += 1
        rows.append(tell.of_partition(at(minute), kind, partition, meta_offset=meta, **said))

    def change(minute: float, partition: int, epoch: int, isr: list[int], before: list[int]) -> None:
        decide(minute, "ISR_CHANGE", partition, partition_epoch=epoch, old_isr=before, new_isr=isr, cause="lag",
               initiator="leader", removed=[], added=[])  # fmt: skip

    for partition in (0, 1):
        decide(0, "STATE_SNAPSHOT", partition, partition_epoch=1, **_STATE)
    change(10, 0, 2, [1, 2], [1, 2, 3])
    change(20, 0, 3, [1, 2, 3], [1, 2])
    rows.append(tell.beat(at(30)))
    change(50, 1, 2, [1, 2], [1, 2, 3])
    for hour in (60, 120):
        for partition in (0, 1):
            isr = [1, 2] if partition == 1 and hour == 60 else [1, 2, 3]
            decide(hour, "STATE_SNAPSHOT", partition, partition_epoch=3 if partition == 0 or hour == 120 else 2,
                   **(_STATE | {"new_isr": isr}))  # fmt: skip
        if hour == 60:
            change(70, 1, 3, [1, 2, 3], [1, 2])
        rows.append(tell.beat(at(hour + 30)))
    # A partition that is created in the first minute of 15 does not belong to 14.
    decide(120.5, "STATE_SNAPSHOT", 2, partition_epoch=1, **_STATE)
    return rows


def reported_by_node() -> list[Row]:
    """Events in both hours and after them."""
    tell = Emitter("north", 1, 5)
    return [tell.beat(at(minute)) for minute in (5, 90, 125)]


def is_late(row: Row) -> bool:
    """The change that p0 lost and regained within 14 is in a file that arrives after all others."""
    return row["event_type"] == "ISR_CHANGE" and row["partition"] == 0


@dataclass
class Step:
    """The state after a run: its answer, and every file with its content and when it was placed."""

    written: Written
    files: dict[str, bytes]
    placed_ns: dict[str, int]

    def rows(self, stat: str, hour: int) -> list[Row]:
        """The rows of an hour: 0 is 14."""
        content = self.files[f"stat={stat}/{layout.hour_folder(HOUR + hour)}/cluster=north/rows.parquet"]
        found: list[Row] = pq.ParquetFile(BytesIO(content)).read().to_pylist()
        return found


class Runner:
    """Runs over an export, into an output."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.export = root / "export"
        self.output = root / "output"

    def run(self, *, output: Path | None = None, hours: tuple[int, int] = (0, 2), recompute: bool = False) -> Step:
        """Run shortly before an hour would be closed merely for its age."""
        output = output or self.output
        question = Question(
            inputs=(str(self.export),), statistics=chosen(STATS), start_us=at(60 * hours[0]), end_us=at(60 * hours[1])
        )
        whole = job.whole_hours(question)
        found = job.hours_for(self.spark, whole, now_us=at(120) + GRACE_US - 1)
        results = ParquetResults(self.spark, str(output), whole.grouping)
        return self.look(job.run(self.spark, whole, found, results, recompute=recompute), output)

    def look(self, written: Written, output: Path | None = None) -> Step:
        """The current state."""
        root = (output or self.output) / "results"
        paths = {path.relative_to(root).as_posix(): path for path in sorted(root.glob("stat=*/**/*.parquet"))}
        return Step(
            written,
            {name: path.read_bytes() for name, path in paths.items()},
            {name: path.stat().st_mtime_ns for name, path in paths.items()},
        )


class Interrupted(Exception):
    """A simulated power failure."""


@pytest.fixture(scope="module")
def steps(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Step]:
    """The steps of the history."""
    root = tmp_path_factory.mktemp("run")
    runner = Runner(spark, root)
    rows = [*reported_by_controller(), *reported_by_node()]
    found: dict[str, Step] = {}
    write_export(runner.export, [row for row in rows if not is_late(row) and row["ts_wall_us"] < at(120)])
    found["open"] = runner.run()
    write_export(runner.export, [row for row in rows if row["ts_wall_us"] >= at(120)])
    found["closed"] = runner.run()
    found["again"] = runner.run()
    found["recompute"] = runner.run(recompute=True)
    found["elsewhere"] = runner.run(output=root / "elsewhere", hours=(1, 2))
    write_export(runner.export, [row for row in rows if is_late(row)])
    found["interrupted"] = _interrupted(runner, found["closed"].written)
    found["late"] = runner.run()
    return found


def _interrupted(runner: Runner, before: Written) -> Step:
    """A run that ends in its second table, before it is moved to its place and after the first one was."""
    with pytest.MonkeyPatch.context() as patched:
        place, first_is_placed = parquet_results.place_rows, threading.Event()

        def fail(*args: Any) -> None:
            root, folder = args[2], args[3]
            if STATS[0] in folder:
                place(*args)
                first_is_placed.set()
                return
            half = Path(f"{root}/{UNFINISHED}/{folder}/place=0/part-0.parquet")
            half.parent.mkdir(parents=True)
            half.write_bytes(b"PAR1")
            assert first_is_placed.wait(300)
            raise Interrupted

        patched.setattr(parquet_results, "place_rows", fail)
        with pytest.raises(Interrupted):
            runner.run()
    return runner.look(before)


def without_hash(rows: list[Row]) -> list[Row]:
    """The content of rows, regardless of their files."""
    return [{name: value for name, value in row.items() if name != "input_manifest_hash"} for row in rows]


def test_an_open_hour_is_not_written(steps: dict[str, Step]) -> None:
    """15 is not over, because no emitter was heard after it; 14 is, with a hole."""
    step = steps["open"]

    assert [hour.state for hour in step.written.hours] == [HourState.CLOSED_INCOMPLETE, HourState.OPEN]
    assert [hour.hour for hour in step.written.left_out] == [HOUR + 1]
    assert len(step.files) == len(STATS)


def test_an_hour_is_closed_by_what_is_heard_after_the_window(steps: dict[str, Step]) -> None:
    """The window ends with 15, but the heartbeats of 16 prove it complete; 14 is left as it was."""
    step = steps["closed"]

    assert step.written.left_out == ()
    assert [hour.hour for hour in step.written.unchanged] == [HOUR]
    assert len(step.files) == 2 * len(STATS)


def test_a_second_run_touches_nothing(steps: dict[str, Step]) -> None:
    """The files are unchanged, and the run returns how many rows they have."""
    before, step = steps["closed"], steps["again"]

    assert len(step.written.unchanged) == 2
    assert step.placed_ns == before.placed_ns
    assert step.written.rows == before.written.rows


def test_computing_anew_gives_the_same_bytes(steps: dict[str, Step]) -> None:
    """A second computation places every file again, and none differs."""
    before, step = steps["again"], steps["recompute"]

    assert step.written.unchanged == ()
    assert all(step.placed_ns[name] > before.placed_ns[name] for name in before.files)
    assert step.files == before.files


def test_an_hour_does_not_depend_on_the_range_of_the_run(steps: dict[str, Step]) -> None:
    """15 alone, in another output, equals the 15 of the run over both hours."""
    of_15 = {name: content for name, content in steps["recompute"].files.items() if "hr=15" in name}

    assert steps["elsewhere"].files == of_15


def test_rows_are_of_partitions_that_there_were(steps: dict[str, Step]) -> None:
    """Partition 2 was created in the minute after 15, which is read for its end."""
    assert {row["partition"] for row in steps["closed"].rows("s10", 1)} == {0, 1}


def test_a_change_over_the_end_of_an_hour_counts_in_both(steps: dict[str, Step]) -> None:
    """p1 lacks a replica from 14:50 to 15:10; p0 from 14:10 to 14:20."""
    under = {
        (hour, row["partition"]): row["under_replicated_us"] // MINUTE_US
        for hour in (0, 1)
        for row in steps["late"].rows("s10", hour)
    }

    assert under == {(0, 0): 10, (0, 1): 10, (1, 0): 0, (1, 1): 10}


def test_a_run_that_is_interrupted_leaves_whole_files(steps: dict[str, Step]) -> None:
    """Each table is the previous one or the one that a whole run writes; the ledger still has the previous state."""
    before, step, after = steps["recompute"], steps["interrupted"], steps["late"]

    fresh = {name for name in step.files if step.files[name] != before.files[name]}
    assert fresh == {name for name in step.files if "hr=14" in name and "stat=s10" not in name}
    assert all(step.files[name] == after.files[name] for name in fresh)


def test_the_run_after_an_interruption_ends_it(
    steps: dict[str, Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Everything that was not whole is computed, and nothing unfinished is left."""
    step = steps["late"]

    assert step.written.unchanged == ()
    assert not (Path(step.written.folder) / UNFINISHED).exists()


def test_a_late_file_is_reported_in_the_results(steps: dict[str, Step]) -> None:
    """Without it p0 was unknown in 14; with it the hour is complete, and unaffected hours stay as they were."""
    before, after = (
        {row["partition"]: row for row in without_hash(steps[step].rows("s08", 0))} for step in ("recompute", "late")
    )

    assert [hour.state for hour in steps["late"].written.hours] == [HourState.CLOSED, HourState.CLOSED]
    assert (before[0]["coverage"], before[0]["shrinks"]) == (0, None)
    assert (after[0]["coverage"], after[0]["shrinks"], after[0]["expands"]) == (1, 1, 1)
    assert before[1] == after[1]
    assert steps["recompute"].rows("s08", 0)[1] != steps["late"].rows("s08", 0)[1]


def test_the_page_beside_the_results_names_every_column(steps: dict[str, Step]) -> None:
    """Every column of every file is explained in `_schema.md`."""
    step = steps["closed"]
    page = (Path(step.written.folder) / "_schema.md").read_text()

    for stat in STATS:
        section = page.partition("## In every result")[2].partition("## s")[0]
        section += page.partition(f"## {stat} ")[2].partition("## s")[0]
        for name in step.rows(stat, 0)[0]:
            assert f"| {name} |" in section, f"{stat}: {name}"


def test_a_window_is_there_in_microseconds_and_as_a_time(steps: dict[str, Step]) -> None:
    """Both columns are the same moment, in UTC."""
    for row in steps["closed"].rows("s10", 0):
        times = (row["window_start_time"], row["window_end_time"])
        assert times == tuple(
            datetime.fromtimestamp(row[name] // 1_000_000, UTC) for name in ("window_start", "window_end")
        )


def test_the_ledger_tells_what_an_hour_was_written_from(steps: dict[str, Step]) -> None:
    """The ledger has the same hash as every row, and the actual number of rows."""
    step = steps["late"]
    path = Path(step.written.folder) / FOLDER / layout.hour_folder(HOUR) / "cluster=north.json"
    reported = json.loads(path.read_text())

    assert reported["state"] == "closed"
    for stat, entry in reported["statistics"].items():
        rows = step.rows(stat, 0)
        assert {row["input_manifest_hash"] for row in rows} == {entry["input_manifest_hash"]}
        assert len(rows) == entry["rows"]


def test_a_file_system_of_hadoop_replaces_as_this_machine_does(spark: SparkSession, tmp_path: Path) -> None:
    """Twice the same location, then no place for it: the second file, then none."""
    mover, place = HadoopMover(spark), tmp_path / "there" / "rows.parquet"
    for content in (b"first", b"second"):
        fresh = tmp_path / content.decode()
        fresh.mkdir()
        (fresh / "part-0.parquet").write_bytes(content)
        mover.replace(f"file://{fresh}", f"file://{place}")
        assert place.read_bytes() == content
    mover.replace(f"file://{tmp_path}/nothing", f"file://{place}")

    assert not mover.exists(f"file://{place}")
