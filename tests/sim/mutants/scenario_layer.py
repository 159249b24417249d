"""The layer of scripted scenarios: plays them to kill a mutant.

A scenario counts only if, under the real rules, its claims hold without breaking any property: scenarios that show what
a historic rule loses are left out. It kills in one of two ways, the stronger one first:

- a property is broken while its commands are played (a line ``!! I5 is broken``, or a core stops by an assertion of
  its own, I0); this run leaves claims out, so that the first wrong one does not end the scenario;
- a claim (a verb ``expect-...``) does not hold.

Invariant: nothing else kills. Different output is counted beside the verdict, and so is a scenario whose commands could
not all be executed because the mutant had already taken another course.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutants.mutant import Layer, Verdict

from strandline_sim.scenario.language import FOLDER, ScenarioFailed, parse
from strandline_sim.scenario.run import run_text

HERE = Path(__file__).parent
FOLDERS = (FOLDER, HERE / "scenarios")
"""All traces of the project, then those that were reported for a mutant."""
CLAIM = "expect-"
_BROKEN = re.compile(r"!! (I\d+) is broken: (.*)")


@dataclass(frozen=True, slots=True)
class Story:
    """A scenario that may kill: its file, its text, and that text without its claims, line for line."""

    name: str
    text: str
    commands: str


@dataclass(frozen=True, slots=True)
class Played:
    """The result of one scenario."""

    killed_by: str = ""
    line: int = 0
    why: str = ""
    differs: bool = False
    is_derailed: bool = False


@cache
def story(name: str) -> Story | None:
    """The scenario of this name, if it may kill: its claims hold under the real rules and it breaks nothing there.

    Must first be called while no rule is swapped.
    """
    found = next(path for folder in FOLDERS if (path := folder / f"{name}.scenario").exists())
    text = found.read_text(encoding="utf-8")
    commands = "".join("#\n" if line.startswith(CLAIM) else f"{line}\n" for line in text.splitlines())
    reported = Story(found.name, text, commands)
    return reported if _holds(reported) else None


@cache
def stories() -> tuple[Story, ...]:
    """Every scenario that may kill. Must first be called while no rule is swapped."""
    names = [path.stem for folder in FOLDERS for path in sorted(folder.glob("*.scenario"))]
    return tuple(reported for name in names if (reported := story(name)) is not None)


def _holds(reported: Story) -> bool:
    try:
        run_text(reported.text, reported.name)
    except ScenarioFailed:
        return False
    return "\n  !! " not in reported.text


def play(reported: Story) -> Played:
    """Play one scenario with the current rules."""
    try:
        transcript = run_text(reported.commands, reported.name, compare=False)
    except ScenarioFailed as end:
        return _played(reported, _upto(reported.commands, end.line), is_derailed=True)
    return _played(reported, transcript.text(), is_derailed=False)


def _upto(commands: str, line: int) -> str:
    """The output before the command that could not be executed."""
    return run_text("\n".join(commands.splitlines()[: line - 1]) + "\n", "part", compare=False).text()


def _played(reported: Story, printed: str, *, is_derailed: bool) -> Played:
    differs = is_derailed or printed != reported.commands
    broken = _first_broken(printed)
    if broken is not None:
        line, name, how = broken
        return Played(name, _line_in_file(printed, reported.commands, line), how, differs, is_derailed)
    failed = _failed_claim(reported)
    if failed is not None:
        verb = failed_verb(reported.text, failed.line)
        why = f"expected: {failed.expected}; actual: {failed.actual}"
        return Played(verb, failed.line, why, differs, is_derailed)
    return Played(differs=differs, is_derailed=is_derailed)


def _first_broken(printed: str) -> tuple[int, str, str] | None:
    for number, line in enumerate(printed.splitlines(), 1):
        found = _BROKEN.search(line)
        if found is not None:
            return number, found[1], found[2]
    return None


def _line_in_file(printed: str, commands: str, number: int) -> int:
    """The line, in the original file, of the command under which line ``number`` of the output was printed."""
    nth = sum(command.line <= number for command in parse(printed, "printed").commands)
    return parse(commands, "commands").commands[nth - 1].line


def _failed_claim(reported: Story) -> ScenarioFailed | None:
    try:
        run_text(reported.text, reported.name, compare=False)
    except ScenarioFailed as failed:
        return failed if failed_verb(reported.text, failed.line).startswith(CLAIM) else None
    return None


def failed_verb(text: str, line: int) -> str:
    """The verb on a line of a scenario."""
    return text.splitlines()[line - 1].split()[0]


def judge(order: Iterable[Story]) -> Verdict:
    """Play these scenarios with the current rules: the first broken property kills, else the first wrong claim."""
    began_s = time.process_time()
    played = [(reported, play(reported)) for reported in order]
    killing = [(reported, how) for reported, how in played if how.killed_by]
    first, how = min(killing, key=lambda pair: pair[1].killed_by.startswith(CLAIM), default=(None, Played()))
    return Verdict(
        layer=Layer.SCENARIOS,
        killed_by=how.killed_by,
        where=f"{first.name}:{how.line}" if first else "",
        why=how.why,
        tried=len(played),
        seconds=time.process_time() - began_s,
        note=_note(len(killing), [how for _, how in played]),
    )


def _note(killing: int, played: list[Played]) -> str:
    otherwise = sum(how.differs and not how.killed_by for how in played)
    derailed = sum(how.is_derailed and not how.killed_by for how in played)
    return f"{killing} scenarios kill; {otherwise} more print something else, {derailed} of them end early"
