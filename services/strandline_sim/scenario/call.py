"""Reads the words of a verb (nodes, links, numbers, durations, options), and reports the wrong ones.

Invariant: every complaint points at the exact word, and says what was expected and what was found there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from strandline_sim.scenario.board import CONTROLLER, Link
from strandline_sim.scenario.language import Command, Misuse, Word
from strandline_sim.scenario.nodes import Actor
from strandline_sim.scenario.stage import Stage
from strandline_sim.scenario.transactions import MOST_RECORDS, count_of, expand

_OPTION = re.compile(r"^([a-z][a-z.-]*)=(.*)$")
_RECORD = re.compile(r"^[\w-]+$")
_DURATION = re.compile(r"^(\d{1,12})(ms|s|m)$")
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000}
E = TypeVar("E", bound=StrEnum)

MOST_MS = 24 * 60 * 60_000
"""A day: the clock moves in steps, and a larger duration is a typing mistake."""


class VerbCall:
    """One command as its verb sees it: ``words`` without the verb and without the options it knows."""

    def __init__(self, stage: Stage, command: Command, options: Iterable[str]) -> None:
        self.stage = stage
        self.command = command
        known = frozenset(options)
        self.words: list[Word] = []
        self.options: dict[str, Word] = {}
        for word in command.words[1:]:
            found = _OPTION.match(word.text)
            if found is not None and found[1] in known:
                self.options[found[1]] = Word(found[2], word.column + found.start(2))
            else:
                self.words.append(word)

    @property
    def end(self) -> int:
        """The column after the last word."""
        last = self.command.words[-1]
        return last.column + len(last.text)

    def wrong(self, word: Word | None, expected: str, actual: str | None = None) -> Misuse:
        """The complaint about a word, or about a missing one."""
        if word is None:
            return Misuse(self.end, expected, actual or "the end of the line")
        return Misuse(word.column, expected, actual or repr(word.text))

    def word(self, index: int, what: str) -> Word:
        """A required word."""
        if index >= len(self.words):
            raise self.wrong(None, what)
        return self.words[index]

    def no_more(self, count: int) -> None:
        """Refuse words after the first ``count``."""
        if len(self.words) > count:
            known = ", ".join(f"{name}=" for name in sorted(self.options)) or "no option"
            raise self.wrong(self.words[count], f"nothing more (the line gives {known})")

    def node(self, word: Word) -> Actor:
        """The node that a word names."""
        actor = self.stage.actors.get(word.text)
        if actor is None:
            raise self.wrong(word, f"a node ({', '.join(self.stage.actors) or 'none was named yet'})")
        return actor

    def running(self, word: Word) -> Actor:
        """A node whose process lives."""
        actor = self.node(word)
        if not actor.is_running:
            raise self.wrong(word, "a node that runs", f"{actor.name}, which is down")
        return actor

    def stopped(self, word: Word) -> Actor:
        """A node whose process has ended."""
        actor = self.node(word)
        if actor.is_running:
            raise self.wrong(word, "a node that is down", f"{actor.name}, which runs")
        return actor

    def nodes(self, word: Word) -> list[Actor]:
        """Several nodes: ``A,B``; ``none`` is not a node."""
        if word.text == "none":
            return []
        column = word.column
        found = []
        for name in word.text.split(","):
            found.append(self.node(Word(name, column)))
            column += len(name) + 1
        return found

    def place(self, word: Word) -> str:
        """A node or the controller."""
        return CONTROLLER if word.text == CONTROLLER else self.node(word).name

    def links(self, word: Word) -> list[Link]:
        """``A->B``, ``A<->B``; ``*`` means all other places, including the controller."""
        found = re.match(r"^([^<>-]+)(<?->)([^<>-]+)$", word.text)
        if found is None:
            raise self.wrong(word, "a link such as A->B, A<->B, A->ctl or *->B")
        sources = self._places(Word(found[1], word.column), other=found[3])
        targets = self._places(Word(found[3], word.column + found.start(3)), other=found[1])
        links = [Link(s, t) for s in sources for t in targets if s != t]
        return links + [Link(t, s) for s, t in links] if found[2] == "<->" else links

    def _places(self, word: Word, *, other: str) -> list[str]:
        if word.text == "*":
            return [place for place in (*self.stage.actors, CONTROLLER) if place != other]
        return [self.place(word)]

    def expanded(self, word: Word, text: str | None = None) -> list[str]:
        """The records that a word represents; ``text`` is the part of it that names them."""
        text = word.text if text is None else text
        count = count_of(text)
        if count > MOST_RECORDS:
            raise self.wrong(word, f"at most {MOST_RECORDS:,} records in one word", f"{count:,}")
        return expand(text)

    def records(self, word: Word) -> list[str]:
        """One record, or several: ``m0..m3``."""
        found = self.expanded(word)
        if not all(_RECORD.match(value) for value in found):
            raise self.wrong(word, "a record (letters, digits, - and _), several (m0..m3), or an option of this verb")
        return found

    def integer(self, word: Word) -> int:
        """A number, 0 or more."""
        if not word.text.isdecimal():
            raise self.wrong(word, "a number")
        return int(word.text)

    def duration_ms(self, word: Word) -> int:
        """``500ms``, ``2s`` or ``1m``."""
        found = _DURATION.match(word.text)
        if found is None:
            raise self.wrong(word, "a duration such as 500ms or 2s")
        duration_ms = int(found[1]) * _UNIT_MS[found[2]]
        if duration_ms > MOST_MS:
            raise self.wrong(word, f"a duration of {MOST_MS // 60_000}m at most")
        return duration_ms

    def choice(self, word: Word, among: type[E]) -> E:
        """One of a closed list."""
        if word.text not in list(among):
            raise self.wrong(word, f"one of {', '.join(among)}")
        return among(word.text)

    def pairs(self, what: str) -> list[tuple[Word, Word]]:
        """Words of the form ``left=right``, at least one."""
        if not self.words:
            raise self.wrong(None, what)
        found = []
        for word in self.words:
            left, equals, right = word.text.partition("=")
            if not equals or not left or not right:
                raise self.wrong(word, what)
            found.append((Word(left, word.column), Word(right, word.column + len(left) + 1)))
        return found

    def integer_option(self, name: str, default: int) -> int:
        """An option that is a number."""
        return self.integer(self.options[name]) if name in self.options else default

    def positive_option(self, name: str, default: int) -> int:
        """An option that is a number, 1 or more."""
        found = self.integer_option(name, default)
        if found < 1:
            raise self.wrong(self.options[name], "a number from 1 on")
        return found

    def maybe_integer(self, name: str) -> int | None:
        """An option that is a number; None if it is absent."""
        return self.integer(self.options[name]) if name in self.options else None

    def duration_option(self, name: str, default_ms: int) -> int:
        """An option that is a duration."""
        return self.duration_ms(self.options[name]) if name in self.options else default_ms

    def text_option(self, name: str, default: str, among: Sequence[str] = ()) -> str:
        """An option that is a word, perhaps one of a list."""
        word = self.options.get(name)
        if word is None:
            return default
        if among and word.text not in among:
            raise self.wrong(word, f"one of {', '.join(among)}")
        return word.text


# ---- verb
# A verb of the scenario language: its name, its arguments and what it does.


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the language: its name, what it does, and the options it knows (``name=value``)."""

    name: str
    run: Callable[[VerbCall], None]
    options: tuple[str, ...] = ()
