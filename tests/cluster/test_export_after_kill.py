"""When a node is killed, none of its writer's events are lost: the next process on its directory exports them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_cluster import Probe, plan, running, until

from strandline.cli.local.local_cluster import LocalCluster
from strandline.export.destination import LocalDirectory
from strandline.export.local_lines import EVENTS_NAME
from strandline.export.reading import clusters, find_files, read_rows
from strandline.export.verify import verify

Rows = dict[int, dict[str, Any]]
VICTIM = 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two nodes that export Parquet files of five minutes, so that no file ends by itself in this test."""
    directory = tmp_path_factory.mktemp("export")
    with running(plan(directory / "cluster", nodes=2, rules={"export_dir": str(directory / "export")})) as cluster:
        yield cluster


def own_lines(cluster: LocalCluster, incarnation: int | None = None) -> Rows:
    """The events in the node's own record of an incarnation, the first if none is given, by number."""
    record = cluster.plan.directory / f"node-{VICTIM}" / EVENTS_NAME
    # A node begins its record with its first events, a moment after it serves.
    text = record.read_text() if record.exists() else ""
    rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    incarnation = rows[0]["incarnation"] if incarnation is None and rows else incarnation
    return {row["seq"]: row for row in rows if row["incarnation"] == incarnation}


def exported(root: Path, incarnation: int) -> Rows:
    """The exported events of an incarnation of the node, by number."""
    place = LocalDirectory(root)
    rows: Rows = {}
    for cluster_id in clusters(place):
        for file in find_files(place, cluster_id):
            for row in read_rows(file.path, place.get(f"{cluster_id}/v1/{file.path}")):
                if (row["node_id"], row["incarnation"]) == (VICTIM, incarnation):
                    rows[row["seq"]] = row
    return rows


async def test_the_events_of_the_last_seconds_survive_kill_9(cluster: LocalCluster) -> None:
    """Every number up to the last is there once, and each transition equals the one in the node's own record."""
    root = cluster.plan.directory.parent / "export"
    async with Probe(cluster) as probe:
        await probe.everybody()
        await probe.create_topic("first", partitions=3, replication_factor=2)

        async def has_started(epochs: int) -> Rows | None:
            rows = own_lines(cluster)
            return rows if sum(row["event_type"] == "EPOCH_START" for row in rows.values()) >= epochs else None

        known = await until(lambda: has_started(1), "the node leads and says so")
        # Later events are written by the same thread, which has then passed on everything before them.
        await probe.create_topic("second", partitions=3, replication_factor=2)
        await until(lambda: has_started(sum(r["event_type"] == "EPOCH_START" for r in known.values()) + 1), "and more")
        incarnation = next(iter(known.values()))["incarnation"]
        assert exported(root, incarnation) == {}
        cluster.nodes[VICTIM].kill()
        await probe.restart(VICTIM)

        async def is_exported() -> Rows | None:
            rows = exported(root, incarnation)
            return rows if rows.keys() >= known.keys() else None

        found = await until(is_exported, "what the killed process had is exported")

    assert sorted(found) == list(range(1, max(found) + 1))
    assert {row["event_type"] for row in found.values()} >= {"EPOCH_START", "REPLICA_SAMPLE"}
    own = own_lines(cluster, incarnation)
    assert {seq: found[seq] for seq in known} == known
    assert all(found[seq] == own[seq] for seq in found.keys() & own.keys())
    (cluster_id,) = clusters(LocalDirectory(root))
    checked = verify(LocalDirectory(root), cluster_id)
    assert (checked.wrong, checked.doubles) == ([], 0)
