"""A frame as text: lanes, marks, arrows; the same columns on every frame."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.scenario_look import STYLES
from strandline.sim.scenario.picture import Film
from strandline.sim.scenario.picture_canvas import Canvas, plain, shortened
from strandline.sim.scenario.picture_drawing import caption, draw, where_we_are
from strandline.sim.scenario.picture_layout import NARROWEST, layout
from strandline.sim.scenario.picture_taking import film
from strandline.sim.scenario.shipped import shipped

FILES = shipped()
SCENE = "strandline-scenario 1\n# Two nodes.\n\nnodes A B\ntopic lines replicas=A,B\n"


def filmed(*commands: str) -> Film:
    """A film of two nodes, A leads, and these commands."""
    return film(SCENE + "\n".join(commands) + "\n", "story")


def drawn(story: Film, index: int = -1, *, width: int = 80, progress: float = 1.0) -> str:
    """One frame as text."""
    return plain(draw(story.frames[index], layout(story, width), progress))


def test_a_frame_as_it_is_drawn() -> None:
    """Controller, ruler, two lanes with their marks, and a message half way."""
    story = filmed("produce A m0", "stabilize", "produce A m1")

    assert drawn(story) == (
        "  ctl   leader=A epoch=0 isr=A,B version=0\n"
        "\n"
        "          0      1      2\n"
        "  A     leads epoch 0  counts A,B, remote B 1\n"
        "        │ m0@0 ┃ m1@0 │                          ○\n"
        "               ▲hw 1  ▲leo 2                     │\n"
        "                                                 ▼── fetched m1@0 hw=1\n"
        "  B     follows A in epoch 0\n"
        "        │ m0@0 │\n"
        "        ▲hw 0  ▲leo 1\n"
        "\n"
        "        acknowledged m0   waiting m1"
    )


def test_a_message_that_arrives_goes_all_the_way() -> None:
    """An arriving message has a double arrow that ends at the target; with less progress a dot shows its position."""
    story = filmed("deliver B->A")
    arrived, under_way = drawn(story, 1), drawn(story, 1, progress=0.25)

    assert arrived.splitlines()[4].endswith("▲")
    assert arrived.splitlines()[8].endswith("○")
    assert "╟── fetch offset=0 epoch=0" in arrived
    assert "●" not in arrived
    assert under_way.splitlines()[7].endswith("●")


def test_lost_held_and_queued_messages_look_different() -> None:
    """A cross where it was lost, a broken line where it is held, one arrow for messages queued behind one another."""
    lost = drawn(filmed("drop B->A"), 1, width=100)
    held = drawn(filmed("hold B->A", "append A m0"))
    queued = drawn(filmed("elect B", "elect A"), width=120)

    assert "✗── lost: fetch offset=0 epoch=0" in lost
    assert "▲── held: fetch" in held
    assert queued.count("1 of 2: leader=B epoch=1") == 2


def test_cut_links_are_named() -> None:
    """A line below the lanes shows between which nodes nothing passes."""
    assert "cut: A->ctl, ctl->A" in drawn(filmed("partition A | ctl"))


def test_logs_that_differ_are_marked_at_their_offset() -> None:
    """The ruler shows ≠ right of the offset at which two nodes hold different records."""
    (text,) = (p.read_text(encoding="utf-8") for p in FILES if p.stem == "tr03b_kip_101")
    ruler = drawn(film(text, "tr03b"), width=110).splitlines()[2]

    assert ruler.split() == ["0", "1", "≠", "2", "≠", "3", "4", "5", "6"]


def test_equal_offsets_stand_above_each_other() -> None:
    """The record at an offset begins in the same column in every lane, whatever lies before it."""
    story = film(
        "strandline-scenario 1\nnodes A B\npreload A e0x5 start=0\npreload B long-name@0 x1..x3@0\n"
        "topic lines replicas=A,B\n",
        "f",
    )
    lines = drawn(story, width=120).splitlines()

    assert lines[4].index(" r3@0") == lines[8].index(" x3@0")
    assert lines[2].index("3") == lines[4].index("r3@0")


def test_a_long_log_shows_its_end() -> None:
    """Columns that do not fit are left out at the beginning, and the ruler shows that."""
    text = drawn(filmed("append A r0..r49"), width=80)

    assert text.splitlines()[2].split() == ["…", "46", "47", "48", "49"]
    assert " r49@0 │" in text
    assert " r3@0" not in text


def test_what_producers_know_stands_below_the_lanes() -> None:
    """Acknowledged, waiting, rejected and unanswered; acknowledged records that are gone have a cross."""
    story = filmed("produce A a0", "stabilize", "produce A a1", "produce B x", "crash A", "cut-log A to=0")
    gone = story.frames[-1].sent
    both = filmed("produce A a0", "stabilize", "crash A B", "cut-log A to=0", "cut-log B to=0")

    assert drawn(story, width=100).splitlines()[-1].strip().split("   ") == [
        "acknowledged a0",
        "refused x",
        "no answer a1",
    ]
    assert [sent.is_lost for sent in gone] == [False, False, False]
    assert drawn(both).splitlines()[-1].strip() == "acknowledged ×a0"


def test_many_requests_show_the_last() -> None:
    """Only the end of a long list is shown."""
    assert "waiting … m2 m3 m4" in drawn(filmed("produce A m0..m9"), width=100)


def test_cut_records_are_crossed_out() -> None:
    """Truncated records stay in their place, with a cross."""
    story = filmed("produce A m0", "hold A.disk", "produce A m1", "power-off A keep=1")

    assert "│ m0@0 │×m1@0 │" in drawn(story)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_frame_is_wider_than_asked(path: Path) -> None:
    """On a narrow terminal and on a wide one drawings and captions fit, and every style is defined."""
    story = film(path.read_text(encoding="utf-8"), path.name)
    for width, every in ((20, 2), (110, 5)):
        where = layout(story, width)
        for index, frame in list(enumerate(story.frames))[::every]:
            lines = [*draw(frame, where, 0.5), *caption(story, index, where.width)]
            assert max(sum(len(span.text) for span in line) for line in lines) <= max(width, NARROWEST)
            assert {span.style for line in lines for span in line} <= set(STYLES)


def test_a_caption_says_what_happened() -> None:
    """Narration, the command with its line, the output, claims, and the next command."""
    story = filmed("# It writes.", "append A m0", "expect-leo A=1", "append A m1")
    words = plain(caption(story, 1, 80))

    assert words == (
        "      It writes.\n   7  append A m0\n        A: leo 0->1\n    ✓ expect-leo A=1\n\n   9  append A m1"
    )
    assert where_we_are(story, 1) == "2 of 3   line 7   t = 0 s"


def test_why_a_run_ended_stands_on_its_last_frame() -> None:
    """The claim with a cross, and the whole message with its caret."""
    story = filmed("append A m0", "expect-leo A=2")
    words = plain(caption(story, len(story.frames) - 1, 80))

    assert "    ✗ expect-leo A=2" in words
    assert "actual:   the leo of A is 1" in words


def test_what_is_outside_of_a_canvas_is_not_there() -> None:
    """Nothing is drawn outside of it; texts that do not fit end with an ellipsis."""
    canvas = Canvas(4)
    canvas.put(-1, 1, "abcdefg", "muted")

    assert plain(canvas.lines()) == "\nbcde"
    assert canvas.at(0, 1) == "b"
    assert canvas.at(9, 9) == " "
    assert (shortened("abcd", 4), shortened("abcde", 4)) == ("abcd", "abc…")
