"""A replayed seed writes the same state events as a cluster of services would, and takes the same course."""

from __future__ import annotations

from pathlib import Path

from strandline.export.destination import LocalDirectory
from strandline.export.encoding import ExportFormat
from strandline.export.reading import clusters, find_files, read_rows
from strandline.export.rows import Row
from strandline.export.verify import Completeness, verify
from strandline_sim.runs.exporting import ExportingTrace
from strandline_sim.runs.profiles import PROFILES
from strandline_sim.runs.run import Outcome, run_world
from strandline_sim.runs.shape import draw_shape
from strandline_sim.runs.trace import Trace
from strandline_sim.world.world import World

SEED = 3


def _run(trace: Trace) -> Outcome:
    world = World(draw_shape(SEED, PROFILES["calm"]), recorder=trace)
    trace.watch(world)
    outcome = run_world(world)
    trace.close()
    return outcome


def _rows(root: Path) -> list[Row]:
    destination = LocalDirectory(root)
    (cluster_id,) = clusters(destination)
    return [
        row
        for file in find_files(destination, cluster_id)
        for row in read_rows(file.path, destination.get(f"{cluster_id}/v1/{file.path}"))
    ]


def test_an_exported_seed_takes_the_same_course(tmp_path: Path) -> None:
    """Observation changes nothing: same events, same committed records, same time; and the export is complete."""
    plain = _run(Trace())
    exported = _run(ExportingTrace(tmp_path, ExportFormat.JSONL))
    found = verify(LocalDirectory(tmp_path), clusters(LocalDirectory(tmp_path))[0])
    rows = _rows(tmp_path)

    assert (plain.events, plain.committed, plain.simulated_us) == (
        exported.events,
        exported.committed,
        exported.simulated_us,
    )
    assert {one.completeness for one in found.incarnations} == {Completeness.COMPLETE}
    assert {"REPLICA_SAMPLE", "LOCAL_SAMPLE", "HW_ADVANCE", "EPOCH_START", "LEADER_CHANGE", "NODE_SESSION"} <= {
        row["event_type"] for row in rows
    }
    assert [row for row in rows if row.get("topic") is None and row.get("topic_id") is not None] == []
    samples = [row for row in rows if row["event_type"] == "REPLICA_SAMPLE" and row["in_isr"] and "leo" in row]
    assert samples
    assert [row for row in samples if row["hw"] > row["leo"]] == [], "a member of the ISR has what is committed"
