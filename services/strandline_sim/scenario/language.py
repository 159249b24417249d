"""Parses and rewrites scenario files: a version, commands, and under each command its expected output.

Invariant: a file that is parsed and written again with the same output stays the same, byte for byte, so
`--rewrite` changes only the output that the run changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

FIRST_LINE = "strandline-scenario 1"
"""Name and version of the language. A version in which old files would have another meaning gets another number."""

INDENT = "  "
"""The indentation of expected output. A line at the margin is a command, a comment, or empty."""


class Word(NamedTuple):
    """A word of a command and its column, counted from 0."""

    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its line (counted from 1) as written, its words, and the output lines under it."""

    line: int
    text: str
    words: tuple[Word, ...]
    expected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A whole file."""

    name: str
    lines: tuple[str, ...]
    commands: tuple[Command, ...]


class Misuse(Exception):
    """A command cannot be carried out as written. ``column`` is the place of the error in its line, counted from 0."""

    def __init__(self, column: int, expected: str, actual: str) -> None:
        super().__init__(f"expected {expected}, found {actual}")
        self.column = column
        self.expected = expected
        self.actual = actual


class ScenarioFailed(Exception):
    """The end of a scenario: where, what was expected, what is; `str` is the whole message with its caret."""

    def __init__(self, name: str, line: int, text: str, column: int, expected: str, actual: str) -> None:
        self.name = name
        self.line = line
        self.expected = expected
        self.actual = actual
        caret = " " * column + "^"
        super().__init__(
            f"{name}:{line}: the scenario fails here\n    {text}\n    {caret}\nexpected: {expected}\nactual:   {actual}"
        )


class NotReadable(ScenarioFailed):
    """The file is not a scenario of this language, so nothing was played."""


def parse(text: str, name: str) -> Script:
    """Read a file.

    Raises:
        NotReadable: it is not a scenario, or has output that belongs to no command.
    """
    lines = text.splitlines()
    first = lines[0] if lines else ""
    if first.rstrip() != FIRST_LINE:
        raise NotReadable(name, 1, first, 0, f"the first line {FIRST_LINE!r}", repr(first))
    commands: list[Command] = []
    for number, line in enumerate(lines[1:], 2):
        words = split(line)
        if line[:1] not in (" ", "\t"):
            if words:
                commands.append(Command(number, line.rstrip(), words, ()))
        elif line.strip():
            above = commands[-1] if commands else None
            if above is None or above.line + len(above.expected) != number - 1:
                raise NotReadable(name, number, line, _margin(line), "a command at the margin", "indented text")
            commands[-1] = replace(above, expected=(*above.expected, line.strip()))
    return Script(name, tuple(lines), tuple(commands))


def split(line: str) -> tuple[Word, ...]:
    """The words of a command; a comment begins with ``#`` at the margin or after a blank."""
    words: list[Word] = []
    for found in re.finditer(r"\S+", line):
        if found[0].startswith("#"):
            break
        words.append(Word(found[0], found.start()))
    return tuple(words)


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def rewritten(script: Script, outputs: Mapping[int, Sequence[str]]) -> str:
    """The file with other output: ``outputs`` has what each command printed, by the command's line."""
    kept = list(script.lines)
    for command in reversed(script.commands):
        printed = [f"{INDENT}{line}" for line in outputs.get(command.line, command.expected)]
        kept[command.line : command.line + len(command.expected)] = printed
    return "\n".join(kept) + "\n"


# ---- shipped
# The scenario files of the distribution, and the search for one by its name.
#
# Invariant: a user's own file takes precedence over a file of the distribution with the same name.

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
"""Every trace of docs/PROTOCOL.md as a file; `docs/SCENARIOS.md` lists them."""
_ENDING = ".scenario"


def shipped() -> list[Path]:
    """The files of the distribution, by name."""
    return sorted(FOLDER.glob(f"*{_ENDING}"))


def find(given: Path) -> Path:
    """The file that ``given`` means: itself, or the file of the distribution with this name."""
    if given.exists() or given.name != str(given):
        return given
    named = FOLDER / f"{given.name.removesuffix(_ENDING)}{_ENDING}"
    return named if named.exists() else given


def title(path: Path) -> str:
    """The first sentence of a file's comment, in one line."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            return line.removeprefix("# ").strip()
    return ""
