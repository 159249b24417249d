"""`strandline scenario play`: text without a terminal, SVG, exit codes; and the keys of the animation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from strandline.cli import scenario_play
from strandline.cli.app import app
from strandline.cli.scenario_screen import SPEEDS, Player
from strandline.sim.scenario.picture_taking import film

STORY = (
    "strandline-scenario 1\n# A little story.\n\nnodes A B\ntopic lines replicas=A,B\n"
    "produce A m0\ndeliver B->A A->B\nstabilize 1s\nexpect-hw A=1\n"
)


def play(*words: str | Path) -> Result:
    """One command line."""
    return CliRunner().invoke(app, ["scenario", "play", *map(str, words)])


@pytest.fixture
def story(tmp_path: Path) -> Path:
    """A file without expected output."""
    file = tmp_path / "story.scenario"
    file.write_text(STORY)
    return file


def test_without_a_terminal_every_frame_is_text(story: Path) -> None:
    """Each frame has a head line, a drawing and its text; all are printed, in order; the file is not changed."""
    result = play(story)
    heads = [line for line in result.stdout.splitlines() if line.startswith("=== ")]

    assert result.exit_code == 0
    assert [int(head.split()[1]) for head in heads] == list(range(1, len(heads) + 1))
    assert heads[-1] == f"=== {len(heads)} of {len(heads)}   line 8   t = 1 s"
    assert "╟── fetch offset=0 epoch=0" in result.stdout
    assert "✓ expect-hw A=1" in result.stdout
    assert story.read_text() == STORY


def test_one_frame(story: Path) -> None:
    """--step selects one frame; a step outside of the film is an error."""
    result = play("--step", "2", story)

    assert result.stdout.startswith("=== 2 of ")
    assert result.stdout.count("=== ") == 1
    assert (play("--step", "99", story).exit_code, play("--step", "0", story).exit_code) == (2, 2)


def test_a_frame_as_svg(story: Path, tmp_path: Path) -> None:
    """--svg writes a picture that is well-formed, contains the record and needs no font from a server."""
    out = tmp_path / "frame.svg"
    result = play("--svg", out, "--step", "2", story)
    text = out.read_text(encoding="utf-8")

    assert result.exit_code == 0
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "m0@0" in text
    assert "A little story." in text.replace("\xa0", " ").replace("&#160;", " ")
    assert "url(http" not in text


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (STORY.replace("A=1", "A=7"), 1, "expected: the hw of A is 7"),
        ("nodes A\n", 2, "the first line 'strandline-scenario 1'"),
        ("strandline-scenario 1\nnodes A\n", 1, "nothing to see"),
        ("strandline-scenario 1\nnodes A\ncrash X\n", 1, "a node (A)"),
    ],
)
def test_what_goes_wrong_is_said(story: Path, text: str, code: int, message: str) -> None:
    """An error is the same as from `run`, on stderr, with the exit code of a failed check or an unreadable file."""
    story.write_text(text)
    result = play(story)

    assert result.exit_code == code
    assert message in result.stderr


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file and bytes that are not text end with exit code 2."""
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")

    assert play(tmp_path / "missing").exit_code == 2
    assert play(binary).exit_code == 2


def test_without_textual_the_frames_come_as_text(
    story: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal without the extra: one line says how to get the animation, then the text follows."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "strandline.cli.scenario_screen", None)
    monkeypatch.delitem(sys.modules, "strandline.cli.scenario_screen")
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    scenario_play.play_file(story, text=False, svg=None, step=None, width=80)
    printed = capsys.readouterr()

    assert scenario_play.NEEDS_TEXTUAL in printed.err
    assert printed.out.startswith("=== 1 of ")


def test_help_does_not_load_textual() -> None:
    """Neither the list of commands nor the help of `play` imports what playing needs."""
    script = (
        "import sys\nfrom strandline.cli.__main__ import main\n"
        "sys.argv = ['strandline', 'scenario', 'play', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', 'textual' in sys.modules, 'strandline.sim' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)

    assert "--step" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "LOADED False False"


@pytest.fixture
def player() -> Player:
    """A player of the story, not yet shown."""
    return Player(film(STORY, "story"))


async def test_keys_step_and_jump(player: Player) -> None:
    """Right and left step, home and end jump; no key leaves the film."""
    async with player.run_test(size=(100, 30)) as pilot:
        seen = []
        for key in ("left", "right", "right", "left", "end", "right", "home"):
            await pilot.press(key)
            seen.append(player.index)
        last = len(film(STORY, "story").frames) - 1

    assert seen == [0, 1, 2, 1, last, last, 0]


async def test_keys_go_by_commands(player: Player) -> None:
    """Down goes to the first frame of the next command, up to that of the one before."""
    lines = [frame.line for frame in film(STORY, "story").frames]
    async with player.run_test(size=(100, 30)) as pilot:
        seen = []
        for key in ("down", "down", "right", "down", "down", "up", "up", "up", "up"):
            await pilot.press(key)
            seen.append((player.index, lines[player.index]))

    assert [line for _, line in seen] == [6, 7, 7, 8, 8, 7, 6, 5, 5]
    assert all(index == lines.index(line) for at, (index, line) in enumerate(seen) if at != 2)


async def test_space_plays_and_pauses(player: Player) -> None:
    """While it plays, frames follow the clock; at the end it stops; space then plays from the beginning."""
    frames = len(film(STORY, "story").frames)
    async with player.run_test(size=(100, 30)) as pilot:
        player.advance(60)
        stood = player.index
        await pilot.press("space")
        for _ in range(frames):
            player.advance(2)
        ended = (player.index, player.playing)
        await pilot.press("space")
        again = (player.index, player.playing)
        await pilot.press("space")
        paused = player.playing

    assert stood == 0
    assert ended == (frames - 1, False)
    assert again == (0, True)
    assert paused is False


async def test_plus_and_minus_change_the_speed(player: Player) -> None:
    """The speed changes in fixed steps, within bounds; at double speed a frame stays half as long."""
    async with player.run_test(size=(100, 30)) as pilot:
        await pilot.press("plus")
        faster = player.speed
        await pilot.press("minus", "minus")
        slower = player.speed
        for _ in SPEEDS:
            player.action_speed(1)
        fastest = player.speed
        for _ in SPEEDS:
            player.action_speed(-1)

    assert (faster, slower) == (2.0, 0.5)
    assert (player.speed, fastest) == (SPEEDS[0], SPEEDS[-1])


async def test_the_screen_shows_the_frame(player: Player) -> None:
    """The screen has the title, the log, the message that arrives and the output; q ends it."""
    async with player.run_test(size=(100, 30)) as pilot:
        for _ in range(2):
            await pilot.press("right")
        player.advance(10)
        await pilot.pause()
        shown = player.export_screenshot().replace("&#160;", " ")
        await pilot.press("q")

    assert "A little story." in shown
    assert "m0@0" in shown
    assert "fetch offset=0 epoch=0" in shown
    assert "deliver B-&gt;A A-&gt;B" in shown
    assert player.is_running is False


async def test_a_smaller_terminal_is_drawn_anew(player: Player) -> None:
    """After a resize the picture has the new width."""
    async with player.run_test(size=(140, 30)) as pilot:
        wide = player.export_screenshot()
        await pilot.resize_terminal(70, 30)
        await pilot.pause()
        narrow = player.export_screenshot()

    assert wide != narrow
    assert "m0" not in narrow.partition("topic")[0]
