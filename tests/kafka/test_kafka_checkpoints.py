"""The checkpoint files of run A's brokers: what they say of epochs, what they contradict, what they never become."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_export import rows_of, run_import, source_of
from run_a_files import CLUSTER
from typer.testing import Result

from strandline_kafka.brokers.checkpoints import read_checkpoints
from strandline_kafka.metadata.wire import Unreadable

HWS = "0\n2\norders 0 3870\npayments 1 3185\n"


@pytest.fixture
def stores(tmp_path: Path, run_a_logs: Callable[[int], Path]) -> dict[int, Path]:
    """A data directory of each node with its small files; high watermarks are those of run A's end."""
    found = {node: run_a_logs(node).parent for node in (1, 2, 3)}
    for node, root in found.items():
        (root / "meta.properties").write_text(f"node.id={node}\ncluster.id={CLUSTER}\n")
        (root / "replication-offset-checkpoint").write_text(HWS)
    return found


def imported(make: Callable[[int], Path], stores: dict[int, Path], out: Path, *more: object) -> Result:
    given: list[object] = [part for node in (1, 2) for part in ("--metadata-log", make(node))]
    given += [part for node, root in stores.items() for part in ("--partitions", f"n{node}={root}")]
    return run_import(*given, "--out", out, *more)


def epochs_of(root: Path, partition: str) -> Path:
    return root / "partitions" / partition / "leader-epoch-checkpoint"


def with_epochs(path: Path, *entries: tuple[int, int]) -> None:
    path.write_text("\n".join(["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries), ""]))


def test_an_epoch_begins_where_the_tables_say(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """Each change to a leader has its epoch's first offset and whose file says so, and no event more comes of it."""
    ran = imported(run_a_node, stores, tmp_path / "out")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "partitions of node 1: 5 replicas, 16 epochs" in ran.stdout
    rows = rows_of(tmp_path / "out")
    leaders = [row for row in rows if row["event_type"] == "LEADER_CHANGE" and row["topic"] == "payments"]
    begins = [(r["partition"], r["new_leader"], r["new_leader_epoch"], r["ext"].get("start_offset")) for r in leaders]
    assert begins == [
        (0, 1, 0, "0"), (1, 2, 0, "0"), (1, 1, 1, "365"), (0, 3, 1, "1811"), (1, 2, 2, "1869"), (0, 1, 2, "2978"),
        (1, 1, 3, "3185"), (0, -1, 3, None), (1, -1, 4, None),
    ]  # fmt: skip
    assert leaders[2]["ext"]["start_source"] == "leader-epoch-checkpoint of node 1"
    assert not [row for row in rows if row["event_type"] in ("EPOCH_START", "REPLICA_SAMPLE")]


def test_a_line_of_the_log_is_preferred(run_a_node: Any, run_a_logs: Any, stores: Any, tmp_path: Path) -> None:
    """Where a broker's log tells the start of an epoch, with its time, the table adds nothing to the election."""
    logs = [part for node in stores for part in ("--logs", f"n{node}={run_a_logs(node)}")]
    assert imported(run_a_node, stores, tmp_path / "out", *logs).exit_code == 0
    rows = rows_of(tmp_path / "out")
    started = {(r["topic"], r["partition"], r["leader_epoch"]) for r in rows if r["event_type"] == "EPOCH_START"}
    changes = [row for row in rows if row["event_type"] == "LEADER_CHANGE"]
    begins = {(r["topic"], r["partition"], r["new_leader_epoch"]) for r in changes if "start_offset" in r["ext"]}
    assert len(started) > 10 and not begins & started


def test_a_replica_without_an_epoch_has_an_empty_table(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """A file of no bytes, as Kafka leaves it for a replica that never got an epoch, is a table without entries."""
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        (stores[1] / "partitions" / "tmp-0").mkdir(exist_ok=True)
        (stores[1] / "partitions" / "tmp-0" / name).write_text("")
    (stores[1] / "partitions" / "tmp-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: vA7fibUSTiqhYhFLFoLtwQ"
    )
    (stores[1] / "replication-offset-checkpoint").write_text("")
    ran = imported(run_a_node, stores, tmp_path / "out")
    assert ran.exit_code == 0
    assert "partitions of node 1: 6 replicas, 16 epochs" in ran.stdout


def test_committed_records_that_a_log_lacks_are_proved(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """A replica without an epoch, which knew more as committed than where another log begins it, proves the loss."""
    with_epochs(epochs_of(stores[2], "orders-0"), (0, 0))
    ran = imported(run_a_node, stores, tmp_path / "out")
    # Of the two, node 1 is in the ELR at the end.
    assert [line for line in ran.stderr.splitlines() if "committed records" in line] == [
        "strandline: note: --partitions: orders-0: node 2 knew everything below 3870 as committed in epoch 0, and on "
        f"node {node} epoch 1 begins at 2301: 1569 committed records are lost there{counted}. If node 2 ran while its "
        "files were copied, copy them again"
        for node, counted in ((1, ", and the metadata log counts that node as complete"), (3, ""))
    ]
    assert len(source_of(tmp_path / "out")["findings"]) == 2


def test_a_log_that_ends_below_no_high_watermark_lost_nothing(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """A replica that lacks an epoch proves no loss if it knew nothing as committed beyond the epoch's begin."""
    with_epochs(epochs_of(stores[2], "orders-0"), (0, 0))
    (stores[2] / "replication-offset-checkpoint").write_text("0\n1\norders 0 2301\n")
    assert imported(run_a_node, stores, tmp_path / "out").stderr == ""


def test_tables_that_contradict_each_other_are_named(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """Two offsets of one epoch are a finding; the leader's own table is believed, and where it is missing none is."""
    with_epochs(epochs_of(stores[2], "payments-1"), (0, 0), (1, 370), (2, 1900), (3, 3190))
    shutil.rmtree(stores[1] / "partitions" / "payments-1")
    ran = imported(run_a_node, stores, tmp_path / "out")
    assert "2 epochs begin at different offsets in two tables" in ran.stderr
    assert "the first is epoch 1 of payments-1 at 365 (node 3) and 370 (node 2)" in ran.stderr
    leaders = [r for r in rows_of(tmp_path / "out") if r["event_type"] == "LEADER_CHANGE" and r["topic"] == "payments"]
    begins = {r["new_leader_epoch"]: r["ext"].get("start_offset") for r in leaders if r["partition"] == 1}
    assert (begins[1], begins[2], begins[3]) == (None, "1900", "3190")


def test_the_first_entry_moves_with_the_start_of_the_log(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """An offset other than 0 in the first entry of a table is no start of its epoch, and contradicts no other table."""
    with_epochs(epochs_of(stores[1], "orders-0"), (1, 2_500), (2, 3634))
    assert imported(run_a_node, stores, tmp_path / "out").stderr == ""
    leaders = [r for r in rows_of(tmp_path / "out") if r["event_type"] == "LEADER_CHANGE" and r["topic"] == "orders"]
    begins = {r["new_leader_epoch"]: r["ext"].get("start_offset") for r in leaders if r["partition"] == 0}
    assert (begins[1], begins[2]) == ("2301", "3634")


def test_partitions_younger_than_the_metadata_log(run_a_node: Any, stores: Any, tmp_path: Path) -> None:
    """An epoch that the metadata log does not reach is named with the remedy, and so is a topic that it lacks."""
    with_epochs(epochs_of(stores[1], "orders-0"), (0, 0), (1, 2301), (2, 3634), (9, 3870))
    (stores[3] / "partitions" / "audit-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    ran = imported(run_a_node, stores, tmp_path / "out")
    assert "give its later copy; the first is orders-0: epoch 9, and 3 by the metadata log" in ran.stderr
    assert "1 partitions are of no topic of the metadata log at its end; the first is audit-0" in ran.stderr


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("meta.properties", f"node.id=7\ncluster.id={CLUSTER}\n", "is of node 7, and was given as that of 1"),
        (
            "meta.properties",
            "node.id=1\ncluster.id=other\n",
            f"of the cluster other, and the metadata log of {CLUSTER}",
        ),
        ("replication-offset-checkpoint", "0\n1\norders 0\n", "checkpoint:3: '0' must be 2 whole numbers"),
        ("replication-offset-checkpoint", "0\n3\norders 0 1\n", ":2: 3 lines are declared and 1 follow"),
        ("replication-offset-checkpoint", "1\n0\n", ":1: a checkpoint of Kafka begins with its version 0"),
        ("partitions/orders-0/leader-epoch-checkpoint", "0\n2\n1 5\n2 5\n", ":4: epoch 2 at 5 does not follow"),
        ("partitions/orders-0/leader-epoch-checkpoint", "0\n1\n1 -5\n", ":3: '1 -5' must be 2 whole numbers"),
        ("partitions/orders-0/partition.metadata", "version: 0\n", "names no topic id"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_refused(stores: Any, name: str, content: str, said: str) -> None:
    """Another owner, another form and damage are one sentence with file and line."""
    (stores[1] / name).write_text(content)
    with pytest.raises(Unreadable) as refused:
        read_checkpoints(1, stores[1], CLUSTER)
    assert said in str(refused.value)


def test_a_directory_without_partitions_is_refused(run_a_node: Any, tmp_path: Path) -> None:
    """The command names the option, says what such a directory holds, and writes nothing."""
    (tmp_path / "empty").mkdir()
    ran = imported(run_a_node, {1: tmp_path / "empty"}, tmp_path / "out")
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"strandline: --partitions: {tmp_path / 'empty'} holds no folder of a partition")
    assert not (tmp_path / "out").exists()
