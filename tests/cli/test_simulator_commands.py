"""`strandline sim exhaust` and `strandline scenario run`: what they print and write, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline_sim.scenario.language import find

RUN = CliRunner()


def test_a_historic_rule_is_reported_in_words() -> None:
    """The loss of truncating to the HW is printed step by step, and is not a failure: it is the published one."""
    result = RUN.invoke(app, ["sim", "exhaust", "--model", "high-watermark", "--records", "2", "--trace"])

    assert result.exit_code == 0, result.output
    assert "the controller elects A, e0" in result.output
    assert "A appends m0/e0 at 0" in result.output
    assert "broken: StrongIsr" in result.output


def test_a_published_violation_that_is_not_found_fails() -> None:
    """With one leader epoch nothing can be truncated, so nothing is found, and the command reports that."""
    result = RUN.invoke(app, ["sim", "exhaust", "--model", "high-watermark", "--epochs", "0", "-o", "json"])

    assert result.exit_code == 1
    rows = json.loads(result.stdout)
    assert {row["found"] for row in rows} == {"holds"}


def test_an_unknown_model_is_refused() -> None:
    """An unknown model is rejected with the names of the existing ones."""
    result = RUN.invoke(app, ["sim", "exhaust", "--model", "kip-0"])

    assert result.exit_code == 2
    assert "leader-epoch" in result.stderr


STORY = "strandline-scenario 1\nnodes A B\ntopic lines replicas=A,B\nproduce A m0\nstabilize\nexpect-hw A=1\n"


def run(*words: str | Path) -> Result:
    """One command of the line."""
    return CliRunner().invoke(app, ["scenario", "run", *map(str, words)])


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """A file whose output is not filled in."""
    file = tmp_path / "story.scenario"
    file.write_text(STORY)
    return file


def test_rewriting_makes_a_file_come_true(story: Path) -> None:
    """Without its output a file fails; --rewrite fills it in; then the file passes and is not changed again."""
    before = run(story)
    written = run("--rewrite", story)
    text = story.read_text()
    after = run(story)

    assert (before.exit_code, written.exit_code, after.exit_code) == (1, 0, 0)
    assert f"{story}:3: the scenario fails here" in before.stderr
    assert "  m0: acked at 0\n" in text
    assert after.stdout == f"{story}: 5 commands, all as expected\n"
    assert story.read_text() == text


def test_a_claim_fails_rewriting_too(story: Path) -> None:
    """--rewrite leaves the file alone when a claim does not hold."""
    story.write_text(STORY.replace("A=1", "A=7"))
    result = run("--rewrite", story)

    assert result.exit_code == 1
    assert "expected: the hw of A is 7\nactual:   the hw of A is 1" in result.stderr
    assert story.read_text() == STORY.replace("A=1", "A=7")


def test_every_file_is_run(story: Path) -> None:
    """One that fails does not hide the others; the worst exit code counts."""
    run("--rewrite", story)
    result = run(story.with_name("missing"), story)

    assert result.exit_code == 2
    assert "No such file" in result.stderr
    assert "all as expected" in result.stdout


@pytest.mark.parametrize("text", ["nodes A\n", "strandline-scenario 1\nnodes A\nnodse B\n"], ids=["first line", "verb"])
def test_a_file_that_is_no_scenario_is_wrong_usage(story: Path, text: str) -> None:
    """A file that is not a scenario ends with exit code 2 and the position of the error."""
    story.write_text(text)
    result = run(story)

    assert result.exit_code == 2
    assert "the scenario fails here" in result.stderr


def test_every_export_lies_below_the_folder_that_was_named(story: Path, tmp_path: Path) -> None:
    """For any names of the files: a stem of dots names no folder above it, and equal names do not collide."""
    names = ["...scenario", ".scenario", "a.scenario", "other/a.scenario"]
    files = [tmp_path / "in" / name for name in names]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(STORY)
    result = run("--rewrite", "--export", tmp_path / "out" / "here", *files)
    found = {path.name: (path / "A").is_dir() for path in (tmp_path / "out" / "here").iterdir()}

    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["here"]
    assert found == {"...scenario": True, ".scenario": True, "a": True, "a-2": True}


def test_a_trace_shows_events_and_effects(story: Path) -> None:
    """--trace prints each core's inputs and effects."""
    result = run("--rewrite", "--trace", story)

    assert "      0 A: ProduceArrived(" in result.stdout
    assert "      0 A: Append(" in result.stdout
    assert "      0 ctl: Commit(" in result.stdout


def test_state_events_leave_by_the_real_exporter(story: Path, tmp_path: Path) -> None:
    """--export writes the events of each place like a node, with the scenario's own time."""
    story.write_text(
        STORY.replace("produce", "tick 2s\nelect B\nmetadata-to B\nmetadata-to A\nproduce B x\nproduce", 1)
    )
    result = run("--rewrite", "--export", tmp_path / "out", story)
    rows = {
        place: [json.loads(line) for line in (tmp_path / "out" / place / "events.jsonl").read_text().splitlines()]
        for place in ("A", "B", "ctl")
    }

    assert result.exit_code == 1  # the claim at the end no longer holds; the events are exported all the same
    assert [r["new_leader"] for r in rows["ctl"] if r["event_type"] == "LEADER_CHANGE"] == [1, 2]
    begun = [r for r in rows["B"] if r["event_type"] == "EPOCH_START"]
    assert [(r["ts_wall_us"], r["leader_epoch"]) for r in begun] == [(2_000_000, 1)]
    assert {r["node_id"] for r in rows["A"]} == {1}


def test_a_scenario_of_the_distribution_is_found_by_its_name(tmp_path: Path) -> None:
    """A bare name is one of `scenario list`, unless the current directory has such a file."""
    listed = CliRunner().invoke(app, ["scenario", "list", "-o", "json"])
    names = {row["name"]: row["shows"] for row in json.loads(listed.stdout)}
    ran = run("tr01_leader_epoch")

    assert names["tr01_leader_epoch"].startswith("TR1, scenario 1 of the articles")
    assert all(names.values())
    assert (ran.exit_code, ran.stdout.endswith("all as expected\n")) == (0, True)
    assert find(tmp_path / "tr01_leader_epoch") == tmp_path / "tr01_leader_epoch"
