"""The logs of run A's brokers as facts, as clocks, and as events beside those of the metadata log."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka_export import Row, rows_of, source_of
from run_a_files import CLUSTER, unpack_logs, unpack_node

from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify
from strandline_kafka.brokers.broker_clocks import BrokerClock, ClockSpan
from strandline_kafka.brokers.broker_logs import BrokerLog, read_logs
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, layout_of
from strandline_kafka.metadata.importing import Import, Imported
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.wire import Unreadable

LAYOUT = layout_of(DEFAULT_PATTERN)
_TIME = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]", re.MULTILINE)


def logs_of(make: Callable[[int], Path], *nodes: int) -> list[BrokerLog]:
    return [read_logs(node, make(node), LAYOUT) for node in nodes]


def imported(make: Callable[[int], Path], logs: Iterable[BrokerLog], out: Path) -> tuple[Imported, list[Row]]:
    copies = [open_copy(make(node)) for node in (1, 2)]
    done = Import(copies, CLUSTER, logs=list(logs)).write(LocalDirectory(out))
    return done, [row for row in rows_of(out) if row["event_type"] != "EXPORT_HEARTBEAT"]


def clock_of(done: Imported, node: int) -> BrokerClock:
    return done.learnt.clocks[node]


def shifted(folder: Path, by_ms: int, *, clock: bool, since: str = "") -> None:
    """Move the times of a log, and where the clock itself was wrong, what it says of members too."""

    def moved(found: re.Match[str]) -> str:
        if found[1] < since:
            return found[0]
        at = datetime.fromisoformat(found[1]) + timedelta(milliseconds=by_ms)
        return f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}]"

    def later(found: re.Match[str]) -> str:
        return f"lastCaughtUpTimeMs: {int(found[1]) + by_ms}"

    for path in folder.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        has_begun = not since
        out = []
        for line in lines:
            written = _TIME.match(line)
            has_begun = has_begun or bool(written and written[1] >= since)
            line = _TIME.sub(moved, line)
            out.append(re.sub(r"lastCaughtUpTimeMs: (\d+)", later, line) if clock and has_begun else line)
        path.write_text("".join(out))


def test_the_logs_of_run_a_are_read_whole(run_a_logs: Any) -> None:
    """Three files a node, and no line of a known family that fits no form."""
    found = logs_of(run_a_logs, 1, 2, 3)
    assert [(log.files, log.unknown, log.other_layout) for log in found] == [(3, Counter(), None)] * 3
    facts = Counter(type(one.fact).__name__ for log in found for one in log.facts)
    assert (facts["ShrinkProposed"], facts["IsrUpdated"], facts["LeaderStarted"], facts["CutDone"]) == (9, 17, 15, 4)


def test_rotated_and_compressed_files_are_one_log(run_a_logs: Any, tmp_path: Path) -> None:
    """A log that was cut in three and partly compressed gives the same facts at the same times."""
    (whole,) = logs_of(run_a_logs, 1)
    folder = run_a_logs(1)
    lines = (folder / "server.log").read_text().splitlines(keepends=True)
    # A file is rotated between events, never within one.
    first, second = (next(n for n in range(at, len(lines)) if lines[n].startswith("[")) for at in (1000, 2000))
    (folder / "server.log.2026-11-22-22").write_text("".join(lines[:first]))
    (folder / "server.log.1.gz").write_bytes(gzip.compress("".join(lines[first:second]).encode()))
    (folder / "server.log").write_text("".join(lines[second:]))
    (parts,) = logs_of(lambda _: folder, 1)
    assert [(one.at_ms, one.fact) for one in parts.facts] == [(one.at_ms, one.fact) for one in whole.facts]
    assert parts.files == 5


def test_a_line_that_two_loggers_wrote_is_one_fact(run_a_logs: Any) -> None:
    """Where a logger passes its lines on, they stand in two files and count once."""
    (whole,) = logs_of(run_a_logs, 3)
    folder = run_a_logs(3)
    with (folder / "server.log").open("a") as file:
        file.write((folder / "state-change.log").read_text())
    (doubled,) = logs_of(lambda _: folder, 3)
    assert len(doubled.facts) == len(whole.facts)


def test_logs_of_another_node_are_refused(run_a_logs: Any) -> None:
    """A line that names node 2 cannot be of node 1."""
    with pytest.raises(Unreadable, match=r"\.log:\d+: a line of node 2 in the logs that were given as those of 1"):
        read_logs(1, run_a_logs(2), LAYOUT)


def test_a_wrong_pattern_is_named(run_a_logs: Any) -> None:
    """If lines look like Kafka's and none is of the layout, the option is named."""
    with pytest.raises(Unreadable, match=r"no line is of the layout that was given, though .* give --log-pattern"):
        read_logs(1, run_a_logs(1), layout_of("%d %p - %m%n"))


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    """A file that ends within its compression ends the reading with file and line."""
    (tmp_path / "server.log.gz").write_bytes(gzip.compress(b"[x] INFO a (b)\n" * 9999)[:-30])
    with pytest.raises(Unreadable, match=r"server\.log\.gz: behind line \d+ the compressed file is damaged"):
        read_logs(1, tmp_path, LAYOUT)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of run A are unpacked, once for all tests that only read."""
    return tmp_path_factory.mktemp("run-a")


@pytest.fixture(scope="module")
def run_a(place: Path) -> tuple[Imported, list[Row]]:
    """Run A with the logs of all three brokers."""
    logs = logs_of(partial(unpack_logs, place), 1, 2, 3)
    return imported(partial(unpack_node, place), logs, place / "out")


def test_the_clocks_of_one_machine_agree(run_a: tuple[Imported, list[Row]]) -> None:
    """Removals and take-overs bound each clock to some ten ms around 0, which is the truth; the zone is UTC."""
    done, rows = run_a
    spans = {node: clock_of(done, node).spans for node in (1, 2, 3)}
    assert {node: [(s.zone_ms, s.low_ms, s.high_ms) for s in found] for node, found in spans.items()} == {
        1: [(0, -11, 29)],
        2: [(0, -71, 35)],
        3: [(0, -2, 30)],
    }
    samples = [row for row in rows if row["event_type"] == "CLOCK_SAMPLE"]
    assert [(r["subject_node_id"], r["offset_us"], r["err_us"]) for r in samples] == [
        (3, 14000, 16000),
        (2, -18000, 53000),
        (1, 9000, 20000),
    ]


@pytest.mark.parametrize(
    ("by_ms", "clock", "zone_ms", "offset_ms"),
    [(37_000, True, 0, 37_000), (7_200_000, False, 7_200_000, 0), (-34_200_000, False, -34_200_000, 0)],
    ids=["37 s ahead", "two hours east", "half past nine west"],
)
def test_a_clock_and_a_zone_are_found(
    run_a_node: Any, run_a_logs: Any, tmp_path: Path, by_ms: int, clock: bool, zone_ms: int, offset_ms: int
) -> None:
    """A log whose clock was wrong, or that was written in another zone, gives the same events at the same moments."""
    _, expected = imported(run_a_node, logs_of(run_a_logs, 1), tmp_path / "expected")
    shifted(run_a_logs(1), by_ms, clock=clock)
    done, rows = imported(
        lambda node: tmp_path / f"node{node}", [read_logs(1, tmp_path / "logs-of-1" / "logs", LAYOUT)], tmp_path / "out"
    )
    (span,) = clock_of(done, 1).spans
    assert (span.zone_ms, span.low_ms, span.high_ms) == (zone_ms, offset_ms - 11, offset_ms + 29)
    own, own_expected = ([row for row in some if row["node_id"] == 1] for some in (rows, expected))
    assert len(own) == len(own_expected) > 20
    moved = {row["ts_wall_us"] - before["ts_wall_us"] for row, before in zip(own, own_expected, strict=True)}
    assert moved == {offset_ms * 1000}


def test_a_clock_that_was_set_is_two_spans(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """A clock that jumped by 20 s between two removals is measured before and after, each by its own pairs."""
    folder = run_a_logs(1)
    shifted(folder, 20_000, clock=True, since="2026-11-22 22:51:30")
    done, _ = imported(run_a_node, [read_logs(1, folder, LAYOUT)], tmp_path / "out")
    before, after = clock_of(done, 1).spans
    assert before.high_ms < 1_000
    assert after.low_ms > 19_000


def test_without_a_pair_nothing_is_corrected(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """A log without removals has no clock, and no sample says that it has one."""
    folder = run_a_logs(3)
    (folder / "server.log").unlink()
    done, rows = imported(run_a_node, [read_logs(3, folder, LAYOUT)], tmp_path / "out")
    assert clock_of(done, 3).spans == ()
    assert not [row for row in rows if row["event_type"] == "CLOCK_SAMPLE"]


def test_the_leader_says_how_far_a_member_had_come(run_a: tuple[Imported, list[Row]]) -> None:
    """Each of the nine removals by a leader has a row of its leader: HW, LEO, and when the member was caught up."""
    _, rows = run_a
    echoes = [row for row in rows if row["event_type"] == "ISR_CHANGE" and row["node_id"] > 0 and row["removed"]]
    assert len(echoes) == 9
    (first,) = (row for row in echoes if (row["topic"], row["partition"], row["partition_epoch"]) == ("orders", 2, 1))
    (member,) = first["removed"]
    assert (first["node_id"], first["hw"], first["leader_leo"]) == (3, 143, 144)
    assert member == {"replica_id": 1, "leo": 143, "last_fetch_us": None, "last_caught_up_us": 1_795_387_874_210_000}


def test_each_row_names_its_line(run_a: tuple[Imported, list[Row]]) -> None:
    """Every event of a broker says in which file and line it stands."""
    _, rows = run_a
    assert all(re.fullmatch(r"[\w.-]+:\d+", row["ext"]["source"]) for row in rows if row["node_id"] > 0)


def test_epochs_start_where_the_checkpoint_files_say(run_a: tuple[Imported, list[Row]], place: Path) -> None:
    """The start offsets of node 1's epochs are those that its own files of epochs have."""
    _, rows = run_a
    partitions = place / "logs-of-1" / "partitions"
    checked = 0
    for row in rows:
        if row["event_type"] == "EPOCH_START" and row["node_id"] == 1:
            lines = (
                (partitions / f"{row['topic']}-{row['partition']}" / "leader-epoch-checkpoint").read_text().splitlines()
            )
            written = dict(tuple(map(int, line.split())) for line in lines[2:])
            assert written[row["leader_epoch"]] == row["start_offset"]
            checked += 1
    assert checked == 5


def test_cuts_after_a_restart_are_told(run_a: tuple[Imported, list[Row]]) -> None:
    """Node 1 cut one record of two logs after its restart, none of it committed, by the epochs of its leader."""
    _, rows = run_a
    cuts = [row for row in rows if row["event_type"] == "TRUNCATION" and row["node_id"] == 1]
    assert [(r["topic"], r["from_leo"], r["to_leo"], r["committed_cut"], r["reason"]) for r in cuts] == [
        ("payments", 1812, 1811, 0, "leader_epoch"),
        ("orders", 2302, 2301, 0, "leader_epoch"),
    ]


def test_a_fence_has_the_cause_that_the_controller_logged(run_a: tuple[Imported, list[Row]]) -> None:
    """Node 2's fence after the kill was for its session; node 1's after its orderly stop has no such line."""
    _, rows = run_a
    fences = [row for row in rows if row["event_type"] == "NODE_SESSION" and row["phase"] == "fence"]
    assert [(row["subject_node_id"], row.get("cause")) for row in fences[:2]] == [(2, "session_timeout"), (1, None)]


def test_a_proposal_and_its_result_are_one_request(run_a: tuple[Imported, list[Row]]) -> None:
    """Every removal that was taken over has its proposal under the same number, and a latency of its own clock."""
    _, rows = run_a
    altered = [row for row in rows if row["event_type"] == "ALTER_PARTITION"]
    proposed = {(r["node_id"], r["incarnation"], r["request_id"]) for r in altered if r["phase"] == "proposed"}
    results = [r for r in altered if r["phase"] == "result"]
    assert {(r["node_id"], r["incarnation"], r["request_id"]) for r in results} <= proposed
    assert len(results) >= 5
    assert all(0 < r["latency_us"] < 1_000_000 for r in results)


def test_the_export_of_logs_is_complete(run_a: tuple[Imported, list[Row]], place: Path) -> None:
    """Each process of a broker is an incarnation of its own, whole and ended; the source names levels and clocks."""
    found = verify(LocalDirectory(place / "out"), CLUSTER)
    assert found.is_sound
    assert {(i.node_id, i.incarnation) for i in found.incarnations} == {
        (-1, 1), (1, 11), (1, 553), (2, 19), (2, 432), (3, 10),
    }  # fmt: skip
    assert {i.completeness for i in found.incarnations} == {Completeness.COMPLETE}
    source = source_of(place / "out")
    assert (source["levels"], source["kafka_versions"]) == (["metadata-log", "broker-logs"], ["4.3.1"])
    assert source["logs"]["2"]["clock"][0]["offset_ms"] == [-71, 35]


def test_the_metadata_log_says_the_same_with_logs_and_without(
    run_a: tuple[Imported, list[Row]], run_a_node: Any, tmp_path: Path
) -> None:
    """Logs change no row of the controller but for measured clocks, causes of fences and what is inferred."""
    _, beside = run_a
    _, alone = imported(run_a_node, [], tmp_path / "alone")

    def of_controller(rows: list[Row]) -> list[Row]:
        kept = [row for row in rows if row["node_id"] == -1 and row["event_type"] != "CLOCK_SAMPLE"]
        own = [{key: value for key, value in row.items() if key not in ("seq", "ext")} for row in kept]
        return [row if row["event_type"] != "NODE_SESSION" else row | {"cause": None} for row in own]

    assert of_controller(beside) == of_controller(alone)


@pytest.mark.parametrize(("low_ms", "high_ms", "least_ms"), [(-4_244, 71, 0), (36, 90, 36), (-90, -36, -36)])
def test_a_clock_that_need_not_be_wrong_is_taken_to_be_right(low_ms: int, high_ms: int, least_ms: int) -> None:
    """Moments of several brokers are compared by the smallest offset of the interval, not by its middle."""
    span = ClockSpan(0, 0, 0, low_ms, high_ms, 1)
    assert (span.least_ms, BrokerClock([span], None).true_ms(1_000)) == (least_ms, 1_000 - least_ms)
