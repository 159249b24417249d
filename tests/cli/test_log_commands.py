"""`strandline log dump` and `log verify` on the files of real logs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import crc32c
import pytest
from tests.cli.data_directories import TOPIC_ID, data_directory
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.local import log_over_rpc
from strandline.cli.local.log_equality import Copy, Fingerprint, compare
from strandline.core.types import TRANSACTIONAL_BIT, LeaderEpoch, Marker, NodeId, Offset
from strandline.records.batch import Batch, split_batches
from strandline.records.codec import NewRecord, encode_batch, encode_marker
from strandline.storage.directory import DataDirectory


def run(*words: str) -> tuple[int, str, str]:
    """Runs the command line; returns exit code, stdout, stderr."""
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.stdout, result.stderr


def test_dump_shows_offsets_epochs_and_crc(tmp_path: Path) -> None:
    """Every batch has its offsets, epoch, size and CRC state."""
    log = dumped(data_directory(tmp_path / "node-1", 1, [[b"a", b"b"], [b"c"]], hw=3))
    batches = [(b["base_offset"], b["last_offset"], b["leader_epoch"], b["crc"]) for b in log["batches"]]

    assert (log["topic"], log["partition"], log["topic_id"]) == ("orders", 0, TOPIC_ID)
    assert (log["high_watermark"], log["leo"]) == (3, 3)
    assert batches == [(0, 1, 3, "ok"), (2, 2, 3, "ok")]


def dumped(directory: Path, *words: str) -> dict[str, Any]:
    """The one log of a directory, as json."""
    code, out, _ = run("log", "dump", str(directory), "-o", "json", *words)
    assert code == 0
    (log,) = json.loads(out)
    return log


def part_of(producer_id: int) -> Batch:
    """A batch of a transaction."""
    part = bytearray(
        encode_batch([NewRecord(None, b"b", 0)], producer_id=producer_id, producer_epoch=2, base_sequence=0)
    )
    part[22] |= TRANSACTIONAL_BIT
    part[17:21] = crc32c.crc32c(bytes(part[21:])).to_bytes(4, "big")
    (batch,) = split_batches(bytes(part))
    return batch


def marker_of(producer_id: int, *, commit: bool = True, coordinator_epoch: int = 0, epoch: int = 3) -> Batch:
    """What ends a transaction."""
    return encode_marker(
        Marker(commit, coordinator_epoch), producer_id=producer_id, producer_epoch=epoch, timestamp_ms=0
    )


def with_batches(directory: Path, *batches: Batch, hw: int) -> Path:
    """A log whose offset 0 is a plain record, followed by these."""
    data_directory(directory, 1, [[b"a"]], hw=1)
    node = DataDirectory.open(directory, node_id=NodeId(1))
    log = node.open_log("orders", 0, TOPIC_ID).log
    for batch in batches:
        log.append([batch], Offset(log.leo), LeaderEpoch(3))
    node.checkpoints.high_watermarks.put(("orders", 0), Offset(hw))
    log.close(clean=True)
    node.close(clean=True)
    return directory


def test_dump_shows_what_is_part_of_a_transaction_and_what_ended_it(tmp_path: Path) -> None:
    """Transactional batches, and markers with outcome and coordinator epoch; a plain batch has neither."""
    ends = marker_of(7, coordinator_epoch=4), marker_of(7, commit=False, coordinator_epoch=5, epoch=4)
    directory = with_batches(tmp_path / "node-1", part_of(7), *ends, hw=4)
    batches = dumped(directory)["batches"]
    _, table, _ = run("log", "dump", str(directory))
    found = [(b["transaction"], b["producer_epoch"], b["coordinator_epoch"]) for b in batches]

    assert found == [(None, None, None), ("part", 2, None), ("commit", 3, 4), ("abort", 4, 5)]
    assert {"transaction", "commit", "abort", "7/2"} <= set(table.split())


@pytest.mark.parametrize(
    ("hw", "lso", "held_by"), [(1, 1, None), (3, 1, (1, 7, 2, 3)), (4, 2, (2, 8, 2, 4)), (5, 5, None)]
)
def test_dump_says_which_transaction_holds_the_lso(
    tmp_path: Path, hw: int, lso: int, held_by: tuple[int, ...] | None
) -> None:
    """X12 by files: up to the HW of the checkpoint, unless a transaction below it has no marker below it."""
    directory = with_batches(tmp_path / "node-1", part_of(7), part_of(8), marker_of(7), marker_of(8), hw=hw)
    log = dumped(directory)
    _, table, _ = run("log", "dump", str(directory), "-n", "1")

    assert log["last_stable_offset"] == lso
    assert (log["held_by"] and tuple(log["held_by"].values())) == held_by
    assert f"LSO {lso} " in table
    assert ("LSO held by" in table) == (held_by is not None)


def test_dump_says_that_a_transaction_is_open(tmp_path: Path) -> None:
    """It has no marker, and the HW says nothing of its end."""
    _, table, _ = run("log", "dump", str(with_batches(tmp_path / "node-1", part_of(7), hw=2)))

    assert "LSO 1 " in table
    assert "LSO held by the transaction of producer 7/2, begun at 1, open" in table


def test_dump_of_one_partition_as_a_table(tmp_path: Path) -> None:
    """A partition's own directory is a log too; the table names it and its HW."""
    directory = data_directory(tmp_path / "node-1", 1, [[b"a", b"b"]], hw=2)
    code, out, _ = run("log", "dump", str(directory / "orders-0"))

    assert code == 0
    assert "orders-0" in out
    assert "HW 2" in out
    assert "2023-11-14T22:13:20Z" in out


def test_dump_of_a_damaged_batch_fails(tmp_path: Path) -> None:
    """A flipped byte is shown at its batch and makes the exit code 1."""
    directory = data_directory(tmp_path / "node-1", 1, [[b"a" * 100], [b"c"]], hw=2)
    segment = next((directory / "orders-0").glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[100] ^= 1
    segment.write_bytes(content)
    code, out, _ = run("log", "dump", str(directory), "-o", "json")

    assert code == 1
    assert [batch["crc"] for batch in json.loads(out)[0]["batches"]] == ["the CRC does not match", "ok"]


def test_dump_from_an_offset_with_a_limit(tmp_path: Path) -> None:
    """--from and --limit narrow the batches down."""
    directory = data_directory(tmp_path / "node-1", 1, [[b"a"], [b"b"], [b"c"], [b"d"]], hw=4)

    assert [batch["base_offset"] for batch in dumped(directory, "--from", "1", "--limit", "2")["batches"]] == [1, 2]


@pytest.mark.parametrize("words", [("log", "dump", "none"), ("log", "dump", "."), ("log", "verify", "none", "none")])
def test_a_directory_without_logs_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A path that is not a data directory ends with exit code 2 and one line that names it."""
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*words)

    assert code == 2
    assert len(err.splitlines()) == 1
    assert words[2] in err


def test_verify_equal_logs(tmp_path: Path) -> None:
    """Copies that agree up to the lowest HW are equal, regardless of what is above it."""
    batches = [[b"a", b"b"], [b"c"]]
    first = data_directory(tmp_path / "node-1", 1, [*batches, [b"x"]], hw=3)
    second = data_directory(tmp_path / "node-2", 2, [*batches, [b"y"]], hw=3)
    code, out, _ = run("log", "verify", str(first), str(second), "-o", "json")
    (row,) = json.loads(out)

    assert code == 0
    assert row["equal"] is True
    assert (row["start"], row["end"], row["batches"], row["replicas"]) == (0, 3, 2, ["node-1", "node-2"])


def test_both_read_what_only_the_journal_holds(tmp_path: Path) -> None:
    """Of a node that was killed, HW, epochs and topic id are in the journal until the files follow."""
    first = data_directory(tmp_path / "node-1", 1, [[b"a", b"b"], [b"x"]], hw=2, killed=True)
    second = data_directory(tmp_path / "node-2", 2, [[b"a", b"b"], [b"y"]], hw=2)
    log = dumped(first)
    verified, rows, _ = run("log", "verify", str(first), str(second), "-o", "json")

    assert verified == 0
    assert (log["topic_id"], log["high_watermark"]) == (TOPIC_ID, 2)
    assert log["epochs"] == [{"epoch": 3, "start_offset": 0}]
    assert [(row["equal"], row["end"]) for row in json.loads(rows)] == [(True, 2)]


def test_verify_says_what_it_did_not_compare(tmp_path: Path) -> None:
    """Records above the saved HW are counted, for people and for programs."""
    paths = [data_directory(tmp_path / f"node-{n}", n, [[b"a", b"b"], [b"c"]], hw=2) for n in (1, 2)]
    code, out, _ = run("log", "verify", *map(str, paths))
    _, document, _ = run("log", "verify", *map(str, paths), "-o", "json")

    assert code == 0
    assert "equal; 1 above the HW not compared" in out
    assert (json.loads(document)[0]["end"], json.loads(document)[0]["leo"]) == (2, 3)


def test_verify_fails_when_it_compared_nothing_though_there_are_records(tmp_path: Path) -> None:
    """A saved HW of 0 beside logs with records is no proof: exit code 1, and how to get one."""
    paths = [data_directory(tmp_path / f"node-{n}", n, [[b"a"], [b"b"]], hw=0) for n in (1, 2)]
    code, out, err = run("log", "verify", *map(str, paths))

    assert code == 1
    assert "nothing compared: the lowest known HW is 0, the logs end at 2" in out
    assert "--bootstrap" in err


def test_verify_of_empty_logs_is_no_failure(tmp_path: Path) -> None:
    """Without records there is nothing to compare."""
    paths = [data_directory(tmp_path / f"node-{n}", n, [], hw=0) for n in (1, 2)]
    code, out, _ = run("log", "verify", *map(str, paths), "-o", "json")

    assert (code, json.loads(out)[0]["equal"]) == (0, True)


def test_verify_names_the_first_difference(tmp_path: Path) -> None:
    """Copies that differ below the HW give exit code 1 and the offset."""
    first = data_directory(tmp_path / "node-1", 1, [[b"a"], [b"b"]], hw=2)
    second = data_directory(tmp_path / "node-2", 2, [[b"a"], [b"c"]], hw=2)
    code, out, _ = run("log", "verify", str(first), str(second))

    assert code == 1
    assert "different" in out


def test_verify_refuses_logs_of_two_topics(tmp_path: Path) -> None:
    """Logs of one name with two topic ids are not copies of one log (M63)."""
    first = data_directory(tmp_path / "node-1", 1, [[b"a"]], hw=1)
    second = data_directory(tmp_path / "node-2", 2, [[b"a"]], hw=1, topic_id=TOPIC_ID.replace("7f8a", "8f8a"))
    code, _, err = run("log", "verify", str(first), str(second))

    assert code == 1
    assert "logs of different topics" in err


def test_verify_without_anything_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither directories nor --bootstrap: wrong usage."""
    monkeypatch.delenv("STRANDLINE_BOOTSTRAP", raising=False)
    code, _, err = run("log", "verify")

    assert code == 2
    assert "data directories" in err


def fingerprint(base: int, end: int, digest: bytes = b"same") -> Fingerprint:
    """A batch as it is compared."""
    return Fingerprint(base, end, 1, 100, digest)


def copy(name: str, start: int, hw: int) -> Copy:
    """A replica's bounds."""
    return Copy(name=name, log_start_offset=start, high_watermark=hw, leo=hw)


async def test_a_running_cluster_is_compared_once_its_replicas_know_the_high_watermark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower gets the HW with its next fetch; the comparison waits for the HW that the leader had first."""
    looks = {"leader": iter([3, 3, 9]), "follower": iter([0, 0, 3])}

    async def bounds_of(replica: str) -> Copy:
        return copy(replica, 0, next(looks[replica]))

    monkeypatch.setattr(log_over_rpc, "_bounds_of", bounds_of)
    monkeypatch.setattr(log_over_rpc, "_LOOK_AGAIN_S", 0.0)
    copies = await log_over_rpc._settled_copies(["leader", "follower"])  # type: ignore[list-item]

    assert [one.high_watermark for one in copies] == [9, 3]


async def test_a_replica_that_stays_behind_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow replica is compared as far as it goes, and the result shows how far that is."""

    async def bounds_of(replica: int) -> Copy:
        return copy(str(replica), 0, replica)

    monkeypatch.setattr(log_over_rpc, "_bounds_of", bounds_of)
    monkeypatch.setattr(log_over_rpc, "_SETTLE_S", 0.0)
    copies = await log_over_rpc._settled_copies([3, 0])  # type: ignore[list-item]

    assert [one.high_watermark for one in copies] == [3, 0]


def test_compare_ignores_what_lies_outside() -> None:
    """Below the highest log start and above the lowest HW the copies may differ."""
    copies = [copy("1", 0, 30), copy("2", 10, 20)]
    batches = {"1": [fingerprint(0, 10, b"old"), fingerprint(10, 20), fingerprint(20, 30)], "2": [fingerprint(10, 20)]}
    found = compare("orders", 0, copies, batches)

    assert (found.equal, found.start, found.end, found.batches) == (True, 10, 20, 1)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((0, 10, 20), [fingerprint(0, 10), fingerprint(10, 20, b"other")], "at offset 10 1 and 2 differ in bytes"),
        ((0, 10, 20), [fingerprint(0, 10)], "at offset 10 2 has no batch where 1 has one"),
        ((0, 10, 20), [fingerprint(0, 5), fingerprint(5, 20)], "at offset 0 1 and 2 differ in end (10 and 5)"),
        ((0, 10), [fingerprint(0, 10)], "the log ends at 10, below the HW 20"),
    ],
    ids=["bytes", "a missing batch", "another boundary", "both end below the HW that they claim"],
)
def test_compare_tells_what_differs(first: tuple[int, ...], second: list[Fingerprint], said: str) -> None:
    """Whatever differs, or is absent from both, has its own message."""
    batches = {"1": [fingerprint(*ends) for ends in pairwise(first)], "2": second}

    assert compare("orders", 0, [copy("1", 0, 20), copy("2", 0, 20)], batches).difference == said
