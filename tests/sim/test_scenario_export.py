"""The state events of a scenario: written by the services' exporter, verified by its own check; and its trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.export.destination import LocalDirectory
from strandline.export.verify import verify
from strandline_sim.scenario.control import CLUSTER_ID
from strandline_sim.scenario.language import FOLDER, ScenarioFailed
from strandline_sim.scenario.run import run_file


def lines(directory: Path, place: str) -> list[dict[str, object]]:
    """The lines that a place printed for people."""
    return [json.loads(line) for line in (directory / place / "events.jsonl").read_text().splitlines()]


def test_an_export_is_sound(tmp_path: Path) -> None:
    """The exporter's own check finds every number of every incarnation; each process is an incarnation of its own."""
    run_file(FOLDER / "e_t36_epochs_on_bounces.scenario", export=tmp_path)
    found = verify(LocalDirectory(tmp_path), CLUSTER_ID)

    assert found.is_sound
    # The controller (node -1) had one epoch, A led in its first process, B in its second; followers emit nothing.
    assert [(i.node_id, i.incarnation) for i in found.incarnations] == [(-1, 1), (1, 1), (2, 2)]
    assert all(i.coverage == 1.0 for i in found.incarnations)


def test_events_carry_the_time_and_the_names_of_the_story(tmp_path: Path) -> None:
    """Elections and truncations are there, at the scenario's own time, with the topic's name."""
    run_file(FOLDER / "tr01_high_watermark.scenario", export=tmp_path)
    (cut,) = [row for row in lines(tmp_path, "A") if row["event_type"] == "TRUNCATION"]
    elected = [row for row in lines(tmp_path, "ctl") if row["event_type"] == "LEADER_CHANGE"]

    assert (cut["node_id"], cut["ts_wall_us"], cut["topic"]) == (1, 6_000_000, "lines")
    assert [row["new_leader"] for row in elected] == [2, 1]


def test_the_same_run_exports_the_same_bytes(tmp_path: Path) -> None:
    """No file depends on when or where it was written."""
    made = []
    for name in ("one", "other"):
        run_file(FOLDER / "tr16_second_attempt.scenario", export=tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        made.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})

    assert made[0] == made[1]
    assert any("transitions" in str(path) for path in made[0])


def test_what_happened_before_a_failure_is_exported(tmp_path: Path) -> None:
    """A scenario that fails still closes its export."""
    file = tmp_path / "story.scenario"
    file.write_text("strandline-scenario 1\nnodes A B\ntopic lines replicas=A,B\nexpect-leo A=3\n")
    with pytest.raises(ScenarioFailed):
        run_file(file, rewrite=True, export=tmp_path / "out")

    assert verify(LocalDirectory(tmp_path / "out"), CLUSTER_ID).is_sound
    assert lines(tmp_path / "out", "ctl")


def test_a_trace_holds_every_event_and_effect(tmp_path: Path) -> None:
    """Each core's steps are there with the time, in order: each input before its effects."""
    traced: list[str] = []
    file = tmp_path / "story.scenario"
    file.write_text("strandline-scenario 1\nnodes A B\ntopic lines replicas=A,B\nproduce A m0\nstabilize\n")
    run_file(file, rewrite=True, trace=traced.append)
    kinds = [line.partition(": ")[2].partition("(")[0] for line in traced if " A: " in line]

    assert kinds.index("ProduceArrived") < kinds.index("Append") < kinds.index("LogFlushed")
    assert kinds.count("FetchArrived") == 2
    assert {"Registered", "MetadataArrived", "OpenLog", "LogOpened", "Flush", "AnswerFetch", "AnswerProduce"} <= set(
        kinds
    )
    assert {line.split()[1] for line in traced} == {"A:", "B:", "ctl:"}
    assert all(line[:7].strip().isdecimal() for line in traced)
