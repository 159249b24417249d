"""The notebook of examples/spark runs from its first cell to its last."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.cluster.running_cluster import Probe, plan, started, stopped
from written_export import HOUR_US, Emitter, write_export

from strandline.cli.local.local_cluster import LocalCluster
from strandline_analytics.topic.pool import close_idle

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

NOTEBOOK = Path(__file__).parents[2] / "examples" / "spark" / "strandline.ipynb"
HOUR = 498_662
MINUTE_US = 60_000_000
STATE = {"leader_epoch": 0, "new_leader": 1, "new_isr": [1, 2, 3], "replicas": [1, 2, 3], "min_isr": 2, "elr": []}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A node and a controller with the topic of the notebook."""
    running = started(plan(tmp_path / "cluster", nodes=1))

    async def create() -> None:
        async with Probe(running) as probe:
            await probe.everybody()
            await probe.create_topic("tides", partitions=2, replication_factor=1)

    try:
        asyncio.run(create())
        yield running
        close_idle()
        ends = stopped(running)
    finally:
        running.kill()
    assert ends == []


def export_of_a_shrink(root: Path) -> None:
    """An hour of one partition that loses a replica after ten minutes."""
    tell, start = Emitter("north", -1), HOUR * HOUR_US
    rows = [
        tell.of_partition(start, "STATE_SNAPSHOT", 0, meta_offset=1, partition_epoch=1, **STATE),
        tell.of_partition(
            start + 10 * MINUTE_US, "ISR_CHANGE", 0, meta_offset=2, partition_epoch=2, old_isr=[1, 2, 3],
            new_isr=[1, 2], cause="lag", initiator="leader", removed=[], added=[],
        ),
        tell.beat(start + 30 * MINUTE_US, final=True),
    ]  # fmt: skip
    write_export(root, rows)


def test_every_cell_runs(
    spark: SparkSession,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its cells, run in order as a kernel would, write and read the topic and find the shrink of the export."""
    export_of_a_shrink(tmp_path / "export")
    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", cluster.bootstrap)
    monkeypatch.setenv("STRANDLINE_EXPORT", str(tmp_path / "export"))
    before = dict(spark.conf.getAll)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}, cell {number}", "exec"), names)

    (row,) = names["worst"].collect()
    assert names["tides"].count() == 100
    assert (row.topic, row.partition, row.seconds) == ("t", 0, 20 * 60)
    assert row.window_start_time.astimezone(UTC) == datetime.fromtimestamp(HOUR * HOUR_US / 1e6, UTC)
    assert "under_replicated_us" in capsys.readouterr().out
    assert dict(spark.conf.getAll) == before


def test_the_notebook_was_saved_without_output() -> None:
    """Outputs say what one machine printed one day, and their changes hide those of the code."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]

    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []
