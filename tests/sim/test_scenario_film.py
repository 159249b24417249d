"""A film of a scenario: which moments become frames, and that it shows everything in the transcript."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.sim.scenario.language import ScenarioFailed
from strandline.sim.scenario.picture import Cell, Fate, Film, Frame
from strandline.sim.scenario.picture_taking import film
from strandline.sim.scenario.run import run_text
from strandline.sim.scenario.shipped import shipped

FILES = shipped()
SCENE = "strandline-scenario 1\n# Two nodes.\n#\n# A |m0|\n\nnodes A B\ntopic lines replicas=A,B\n"


def filmed(*commands: str) -> Film:
    """A film of two nodes, A leads, and these commands."""
    return film(SCENE + "\n".join(commands) + "\n", "story")


def of(story: Film, command: str) -> list[Frame]:
    """The frames of one command."""
    return [frame for frame in story.frames if frame.command == command]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_film_tells_what_the_transcript_tells(path: Path) -> None:
    """Every line that a run prints is on one frame, in order; every claim is noted once, and holds."""
    text = path.read_text(encoding="utf-8")
    story, transcript = film(text, path.name), run_text(text, path.name)
    silent = ("show", "messages", "expect-")
    commands = {c.line: c.text for c in transcript.script.commands}
    reported = {
        line: [line_reported for f in story.frames if f.line == line for line_reported in f.reported]
        for line in commands
    }

    claims = [claim for frame in story.frames for claim in frame.claims]

    assert story.failure == ""
    for line, printed in transcript.outputs.items():
        if printed and not commands[line].startswith(silent):
            assert reported[line] == printed
    assert [c.text for c in claims] == [line.rstrip() for line in text.splitlines() if line.startswith("expect-")]
    assert all(claim.holds for claim in claims)


def test_a_message_is_seen_before_what_it_changes() -> None:
    """A delivery is two frames: the message arriving in the unchanged world, then the changed world."""
    before, after = of(filmed("append A m0", "deliver B->A"), "deliver B->A")

    assert [(f.source, f.target, f.fate) for f in before.flights] == [("B", "A", Fate.ARRIVING)]
    assert "remote B none" in before.lanes[0].counts
    assert "remote B 0" in after.lanes[0].counts
    assert [(f.source, f.kind, f.fate) for f in after.flights] == [("A", "fetched", Fate.WAITING)]
    assert after.lanes[0].changed == {"counts"}


def test_stabilize_shows_only_what_changes_something() -> None:
    """Fetches that return nothing new are no frames, however long time passes."""
    busy = of(filmed("produce A m0", "stabilize 1s"), "stabilize 1s")
    idle = of(filmed("stabilize 1s", "stabilize 20s"), "stabilize 20s")

    assert [frame.reported for frame in busy if frame.reported] == [
        ("A: remote B none->0",),
        ("B: leo 0->1",),
        ("A: remote B 0->1, hw 0->1", "m0: acked at 0"),
        ("B: hw 0->1",),
    ]
    assert len(idle) == 1


def test_cut_records_are_seen_once_more() -> None:
    """The frame on which records are removed names them; the next one no longer does."""
    (text,) = (p.read_text(encoding="utf-8") for p in FILES if p.stem == "tr01_high_watermark")
    story = film(text, "tr01")
    at = next(i for i, f in enumerate(story.frames) if any("truncates 2->1" in line for line in f.reported))
    cut = {lane.name: lane.cut for lane in story.frames[at].lanes}

    assert cut == {"A": (Cell(1, 0, "m1"),), "B": ()}
    assert all(lane.cut == () for lane in story.frames[at + 1].lanes)


def test_lost_and_held_messages_are_seen() -> None:
    """A lost message has a frame; one whose link is held is marked, and a cut link is named."""
    story = filmed("hold A->B", "produce A m0", "deliver B->A", "drop A->B", "partition A | B")
    lost = of(story, "drop A->B")[0]
    held = of(story, "deliver B->A")[-1]

    assert [f.fate for f in lost.flights if f.source == "A"] == [Fate.LOST]
    assert [f.fate for f in held.flights if f.source == "A"] == [Fate.HELD]
    assert story.frames[-1].cut_links == ("A->B", "B->A")


def test_comments_narrate_and_the_first_one_is_the_title() -> None:
    """The comment right above a command is shown with its frames; the drawing at the top of the file is not."""
    story = filmed("# B asks,", "# for the first time.", "deliver B->A", "", "append A m0")

    assert story.title == "Two nodes."
    assert story.frames[0].narration == ()
    assert {frame.narration for frame in of(story, "deliver B->A")} == {("B asks,", "for the first time.")}
    assert story.frames[-1].narration == ()


def test_a_claim_that_fails_ends_the_film() -> None:
    """The frames up to there are kept; the claim is marked, and the failure is that of a run."""
    story = filmed("append A m0", "expect-leo A=1", "expect-leo A=2", "append A m1")

    assert [(c.text, c.holds) for c in story.frames[-1].claims] == [("expect-leo A=1", True), ("expect-leo A=2", False)]
    assert "story:10: the scenario fails here" in story.failure
    assert story.frames[-1].lanes[0].leo == 1


def test_a_command_that_cannot_be_done_ends_the_film() -> None:
    """A command that cannot be executed ends the film, and is marked like a claim that fails."""
    story = filmed("append A m0", "crash X")

    assert story.frames[-1].claims[-1].holds is False
    assert "a node (A, B)" in story.failure


def test_expected_output_is_not_compared() -> None:
    """A file whose output is missing, or wrong, is still played; one that is not a scenario is rejected."""
    story = filmed("append A m0", "  A: leo 7->8")

    assert story.failure == ""
    assert story.frames[-1].reported == ("A: leo 0->1",)
    with pytest.raises(ScenarioFailed):
        film("nodes A\n", "f")


def test_a_node_that_is_down_shows_its_disk() -> None:
    """What is on the disk of a dead process, and how much of it a loss of power would leave."""
    story = filmed("hold A.disk", "produce A m0 m1", "crash A")
    lane = story.frames[-1].lanes[0]

    assert (lane.role, lane.is_up, lane.leo, lane.durable) == ("down", False, 2, 0)
    assert [str(cell) for cell in lane.cells] == ["m0@0", "m1@0"]
