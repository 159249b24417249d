"""`strandline analytics import kafka`, also with `--append`: what it says, what it refuses, its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka_export import files_of, refusal, rows_of, run_import, source_of, source_path
from run_a_files import CLUSTER, SEGMENT
from typer.testing import Result

from strandline.export.destination import LocalDirectory
from strandline.export.verify import Completeness, verify


def logs(*roots: Path) -> list[object]:
    return [part for root in roots for part in ("--metadata-log", root)]


def test_two_of_three_logs_are_imported_whole(run_a_node: Any, tmp_path: Path) -> None:
    """The command says what each log holds, how far it is committed, and how many events it became."""
    ran = run_import(*logs(run_a_node(1), run_a_node(2)), "--out", tmp_path / "out")
    assert (ran.exit_code, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("node 1 (") and lines[0].endswith("1 segments, 1 snapshots")
    assert lines[2] == f"cluster {CLUSTER}: offsets 0 to 1658, committed up to 1658; voters 1, 2, 3"
    assert lines[3].startswith(
        "1,658 records, 2026-11-22T22:49:05.855Z to 2026-11-22T23:02:00.1Z: 202 events in 2 files"
    )
    assert (tmp_path / "out" / CLUSTER / "v1" / "transitions").is_dir()


def test_an_end_that_is_not_proved_is_named(run_a_node: Any, tmp_path: Path) -> None:
    """One log of three is imported up to its snapshot, and the rest is counted with the remedy."""
    ran = run_import(*logs(run_a_node(1)), "--out", tmp_path / "out")
    assert ran.exit_code == 0
    assert (
        "1515 records at the end are not proved to be committed and are left out; give the logs of most" in ran.stderr
    )
    assert ran.stdout.splitlines()[-1].startswith("143 records,")


def test_inspect_writes_nothing(run_a_node: Any, tmp_path: Path) -> None:
    """`--inspect` needs no place for the export and leaves none."""
    root = run_a_node(3)
    before = sorted(tmp_path.rglob("*"))
    ran = run_import(*logs(root), "--inspect")
    assert ran.exit_code == 0
    assert "committed up to 142" in ran.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_is_not_written_over_another(run_a_node: Any, tmp_path: Path) -> None:
    """A place that is not empty is refused, and nothing there is touched."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    ran = run_import(*logs(run_a_node(1), run_a_node(2)), "--out", tmp_path / "out")
    assert ran.exit_code == 1
    assert "out is not empty, and one import is one export; name another" in ran.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_damage_is_a_sentence_with_file_and_offset(run_a_node: Any, tmp_path: Path) -> None:
    """A damaged log ends the command with one line, and no export is begun."""
    root = run_a_node(1)
    path = root / "__cluster_metadata-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[5000] ^= 0xFF
    path.write_bytes(content)
    ran = run_import(*logs(root, run_a_node(2)), "--out", tmp_path / "out")
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"strandline: --metadata-log: {path}: position ")
    assert ran.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--out: name the directory or URI of the export, or ask for --inspect"),
        (["--out", "x", "--assume", "retention.ms=1"], "'retention.ms' cannot be assumed; known are"),
        (["--out", "x", "--assume", "min.insync.replicas=0"], "must be a positive whole number"),
        (["--out", "x", "--assume", "min.insync.replicas=two"], "must be a positive whole number"),
    ],
)
def test_wrong_usage_names_the_option(run_a_node: Any, arguments: list[str], said: str) -> None:
    """A wrong option is named with its rule, and the exit code is 2."""
    ran = run_import(*logs(run_a_node(1)), *arguments)
    assert ran.exit_code == 2
    assert said in refusal(ran)


def test_logs_of_two_clusters_are_refused(run_a_node: Any, tmp_path: Path) -> None:
    """Logs whose meta.properties name different clusters are not merged."""
    one, two = run_a_node(1), run_a_node(2)
    (two / "meta.properties").write_text("node.id=2\ncluster.id=other\n")
    ran = run_import(*logs(one, two), "--out", tmp_path / "out")
    assert ran.exit_code == 1
    assert f"the logs are of several clusters: {CLUSTER}, other; import each by itself" in ran.stderr


def test_logs_are_told_and_what_is_not_known_of_them(run_a_node: Any, run_a_logs: Any, tmp_path: Path) -> None:
    """The command says what it read of each broker's logs, and names the first line of a family in an unknown form."""
    folder = run_a_logs(3)
    with (folder / "server.log").open("a") as file:
        file.write("[2026-11-22 23:02:01,000] INFO [Partition a-0 broker=3] Expanding ISR from 1 to 1,2 (k)\n")
    ran = run_import(*logs(run_a_node(1), run_a_node(2)), "--logs", f"n3={folder}", "--out", tmp_path / "out")
    assert ran.exit_code == 0
    assert "logs of node 3: 3 files, 2,120 lines, 52 that matter" in ran.stdout
    assert "node 3: 1 lines of the family 'expansion' have an unknown form, the first at server.log:" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--logs", "three=x"], "'three=x' must be a node and its folder, as n1=/var/log/kafka"),
        (["--logs", "n1=x", "--logs", "1=y"], "node 1 is given twice"),
        (["--log-pattern", "%p %m"], "must have %d once"),
        (["--from", "2026-11-22T23:00:00Z", "--to", "2026-11-22T22:00:00Z"], "the end must be behind --from"),
    ],
)
def test_wrong_words_about_logs_and_windows_are_named(run_a_node: Any, arguments: list[str], said: str) -> None:
    """A folder without a node, a node given twice, a pattern without a date, a window without a length."""
    ran = run_import(*logs(run_a_node(1)), "--out", "x", *arguments)
    assert ran.exit_code == 2
    assert said in refusal(ran)


MIXED = (
    "[2026-11-22 22:51:01,000] INFO [Partition a-0 broker=3] ISR updated to 1,2  and version updated to 1 (k)\n"
    "2026-11-22 22:51:02,000 INFO [Partition a-0 broker=3] ISR updated to 1  and version updated to 2 (k) [main]\n"
)


def test_lines_of_another_layout_are_named_and_a_second_pattern_reads_them(run_a_node: Any, tmp_path: Path) -> None:
    """Half of a log in another layout is counted with its first line; with both patterns nothing of it is left."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "server.log").write_text(MIXED)
    given = [*logs(run_a_node(1), run_a_node(2)), "--logs", f"n3={folder}", "--inspect"]
    one = run_import(*given)
    assert one.exit_code == 0
    assert (
        "node 3: 1 lines look like Kafka's and are of no layout that was given, the first at server.log:2" in one.stderr
    )
    both = run_import(*given, "--log-pattern", "[%d] %p %m (%c)%n", "--log-pattern", "%d %p %m (%c) [%t]%n")
    assert "1 files, 2 lines, 2 that matter" in both.stdout
    assert "layout" not in both.stderr


def test_logs_that_say_nothing_and_files_that_are_not_read_are_named(run_a_node: Any, tmp_path: Path) -> None:
    """A log without a line that matters, and other files in its folder, are said; logs of requests are passed over."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "server.log").write_text("[2026-11-22 22:51:01,000] WARN nothing (k)\n")
    for name in ("broker-old.txt", "kafka-request.log", "kafkaServer-gc.log.0.current", "log-cleaner.log"):
        (folder / name).write_text("")
    ran = run_import(*logs(run_a_node(1), run_a_node(2)), "--logs", f"n3={folder}", "--inspect")
    assert "node 3: no line of its logs matters" in ran.stderr
    assert "node 3: 1 other files of its folder are not read, such as broker-old.txt" in ran.stderr


def test_lines_that_find_no_decision_are_named_with_the_first(run_a_node: Any, tmp_path: Path) -> None:
    """A line about a topic that the metadata log never had is counted, and its place is said."""
    log = tmp_path / "node3.log"
    log.write_text(MIXED.splitlines(keepends=True)[0])
    ran = run_import(*logs(run_a_node(1), run_a_node(2)), "--logs", f"n3={log}", "--out", tmp_path / "out")
    assert ran.exit_code == 0
    assert "node 3: 1 lines (ISR updated) are of no change that the metadata log holds at their time" in ran.stderr
    assert "the first at node3.log:1; they are left out" in ran.stderr


# `strandline analytics import kafka --append`: an export that is gone on with, event by event, and what is refused.


def imported(root: Path, out: Path, *more: object) -> Result:
    return run_import("--metadata-log", root, "--trust-tail", "--out", out, *more)


def events_of(out: Path) -> list[dict[str, Any]]:
    """Everything but the signs of life, without numbers."""
    rows = (row for row in rows_of(out) if row["event_type"] != "EXPORT_HEARTBEAT")
    return [{name: value for name, value in row.items() if name != "seq"} for row in rows]


def cut_to(root: Path, size: int) -> bytes:
    """Leave so many bytes of a log; returns all of them."""
    path = root / "__cluster_metadata-0" / SEGMENT
    content = path.read_bytes()
    path.write_bytes(content[:size])
    return content


def grown(root: Path, content: bytes) -> None:
    (root / "__cluster_metadata-0" / SEGMENT).write_bytes(content)


@pytest.fixture
def root(run_a_node: Any) -> Path:
    """The directory of one node of run A, whose log is trusted."""
    found: Path = run_a_node(1)
    return found


def test_three_parts_are_the_whole(root: Path, tmp_path: Path) -> None:
    """A log that is imported in three parts gives every event of one import, once, in one row of numbers."""
    assert imported(root, tmp_path / "whole").exit_code == 0
    content = cut_to(root, 30_000)
    assert imported(root, tmp_path / "parts").exit_code == 0
    assert 0 < len(events_of(tmp_path / "parts")) < len(events_of(tmp_path / "whole"))
    for size in (60_001, len(content)):
        grown(root, content[:size])
        assert imported(root, tmp_path / "parts", "--append").exit_code == 0
    assert events_of(tmp_path / "parts") == events_of(tmp_path / "whole")
    numbers = [(row["incarnation"], row["seq"]) for row in rows_of(tmp_path / "parts")]
    assert numbers == [(1, seq) for seq in range(1, len(numbers) + 1)]
    found = verify(LocalDirectory(tmp_path / "parts"), CLUSTER)
    assert [one.completeness for one in found.incarnations] == [Completeness.COMPLETE]
    whole, parts = (source_of(tmp_path / name) for name in ("whole", "parts"))
    assert (whole.pop("imports"), parts.pop("imports")) == (1, 3)
    assert whole.pop("last_seqs") != parts.pop("last_seqs")
    assert whole == parts


def test_nothing_new_changes_nothing(root: Path, tmp_path: Path) -> None:
    """An import that has nothing to add says so, and no file is another one."""
    assert imported(root, tmp_path / "out").exit_code == 0
    before = files_of(tmp_path / "out")
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 0
    assert "the export ends at offset 1658, and nothing behind it is proved; unchanged" in ran.stdout
    assert files_of(tmp_path / "out") == before


def test_an_end_that_was_taken_back_is_refused(root: Path, tmp_path: Path) -> None:
    """A log that does not hold the batch at which the export ends is another one, and nothing is written."""
    content = cut_to(root, 30_000)
    assert imported(root, tmp_path / "out").exit_code == 0
    said = source_of(tmp_path / "out")
    source_path(tmp_path / "out").write_text(json.dumps(said | {"end_crc": said["end_crc"] ^ 1}))
    grown(root, content)
    before = files_of(tmp_path / "out")
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 1
    assert f"offset {said['end_offset'] - 1} is not what was imported before" in ran.stderr
    assert files_of(tmp_path / "out") == before


def test_a_log_that_begins_too_late_is_refused(root: Path, tmp_path: Path) -> None:
    """Where records lie between the end of the export and the begin of the log, they are named."""
    content = cut_to(root, 30_000)
    assert imported(root, tmp_path / "out").exit_code == 0
    end = source_of(tmp_path / "out")["end_offset"]
    at = 0
    while int.from_bytes(content[at : at + 8]) <= end + 50:
        at += 12 + int.from_bytes(content[at + 8 : at + 12])
    begin = int.from_bytes(content[at : at + 8])
    folder = root / "__cluster_metadata-0"
    (folder / SEGMENT).unlink()
    (folder / f"{begin:020}.log").write_bytes(content[at:])
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 1
    assert f"the log begins at offset {begin}, and the export ends at {end}" in ran.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"levels": ["metadata-log", "broker-logs"]}, "of which a later line changes what is written already"),
        ({"levels": ["metadata-log", "prometheus"]}, "was made of metadata-log, prometheus; give the same sources"),
        ({"window_us": [0, 5]}, "the export is of a window (--from, --to), behind which nothing can be put"),
        ({"assumed": {"min.insync.replicas": 2}}, "was made with --assume min.insync.replicas=2; give the same"),
        ({"end_offset": None}, "cannot be read, so nothing says where the export ends"),
    ],
)
def test_an_export_that_cannot_be_gone_on_with(root: Path, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    """Another source, a window, another assumption, and an export that says nothing of itself are refused."""
    assert imported(root, tmp_path / "out").exit_code == 0
    found = source_of(tmp_path / "out")
    source_path(tmp_path / "out").write_text(json.dumps(found | changed))
    ran = imported(root, tmp_path / "out", "--append")
    assert ran.exit_code == 1
    assert ran.stderr.startswith("strandline: --append: ") and said in ran.stderr


def test_the_export_of_another_cluster_is_refused(root: Path, tmp_path: Path) -> None:
    """An empty place, or one of another cluster, has nothing to go on with."""
    assert imported(root, tmp_path / "out").exit_code == 0
    (root / "meta.properties").write_text("node.id=1\ncluster.id=other\n")
    for out in (tmp_path / "out", tmp_path / "nothing"):
        ran = imported(root, out, "--append")
        assert ran.exit_code == 1
        assert "there is no export of the cluster other to go on with; leave --append out" in ran.stderr


@pytest.mark.parametrize("more", [("--inspect",), ("--logs", "n1=x"), ("--to", "2026-11-22T23:00:00Z")])
def test_only_a_whole_metadata_log_is_gone_on_with(root: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    """What would give figures of half of the time is a mistake of usage."""
    assert imported(root, tmp_path / "out", "--append", *more).exit_code == 2
