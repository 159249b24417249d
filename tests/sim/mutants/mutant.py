"""A mutant: one rule of the protocol swapped for a wrong one, for the length of a `with` block.

Invariant: outside of the block every rule is the real one, the very same object, also after an exception inside; and a
swap counts how often its rule was called and how often the wrong answer differed from the right one, so a mutant that
changes nothing cannot pass for one that survived.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import patch

# ---- verdict
# A test layer's verdict on a mutant, and when that counts as a kill.
#
# Invariant: a mutant is killed by a property that must never be broken, by a liveness promise that is not kept, by a
# claim that a scenario makes, or by a unit test that it names; never by output that is only different.


class Layer(StrEnum):
    """The layers, the cheapest first."""

    TESTS = "tests"
    """Unit tests, of a mutant that names some."""
    SCENARIOS = "scenarios"
    SEEDS = "seeds"
    SEARCH = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one layer.

    Attributes:
        killed_by: the invariant (I5), promise of liveness (L6), anomaly or claim; empty if the mutant survived.
        where: the scenario with its line, the seed with its profile, or the model.
        why: the message with which it failed.
        tried: how many tests, scenarios, seeds or states it took, the killing one included.
        seconds: how much processor time that took, so that a busy machine changes no verdict.
        note: other information, such as scenarios that only printed something else.
    """

    layer: Layer
    killed_by: str = ""
    where: str = ""
    why: str = ""
    tried: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def is_kill(self) -> bool:
        """Whether this layer alone would have caught the mutant."""
        return bool(self.killed_by)

    @property
    def is_by_property(self) -> bool:
        """Whether a named property was broken, not only a claim of one file."""
        return self.is_kill and self.killed_by != "test" and not self.killed_by.startswith("expect-")

    def as_json(self) -> dict[str, Any]:
        """For `docs/mutants.json`."""
        return asdict(self)


# ---- mutant


ROOMS = ("strandline.core", "strandline.rpc", "strandline_sim")
"""Where rules are decided, where clients meet them, and where they are doubted; a function is exchanged under every
name it has in here."""


class Real:
    """The rule that was swapped out, called as before. It counts how its replacement behaves."""

    __slots__ = ("asked", "differed", "name", "rule")

    def __init__(self, name: str, rule: Callable[..., Any]) -> None:
        self.name = name
        self.rule = rule
        self.asked = 0
        self.differed = 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        """The right rule's result."""
        return self.rule(*given, **named)

    def differs(self) -> None:
        """Count that the wrong rule is about to act differently from the right one."""
        self.differed += 1


Wrong = Callable[..., Any]
"""A rule in place of another: it is given the `Real` one first, then what that one would be given."""


@dataclass(frozen=True, slots=True)
class Swap:
    """One rule, by the class or module that holds it and its name there, and the wrong one for it.

    ``pure`` means that the rule only returns a value: then the right rule is called, too, and the two results are
    compared. Where it is False the wrong rule itself calls `Real.differs`.
    """

    owner: type | ModuleType
    name: str
    wrong: Wrong
    pure: bool = True

    @property
    def place(self) -> str:
        """The rule's name for people: ``isr.may_join``, ``FetchServing._check``."""
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}"

    def real(self) -> Any:
        """The object that is in place now, descriptors as they are."""
        return vars(self.owner)[self.name]

    @contextmanager
    def applied(self) -> Iterator[Real]:
        """Swap the rule, in every place that holds it."""
        before = self.real()
        is_property = isinstance(before, property)
        real = Real(self.place, before.fget if is_property else before)
        rule = _counted(real, self.wrong, pure=self.pure)
        with ExitStack() as swapped:
            for owner in _holders(self.owner, self.name, before):
                swapped.enter_context(patch.object(owner, self.name, property(rule) if is_property else rule))
            yield real


def _counted(real: Real, wrong: Wrong, *, pure: bool) -> Callable[..., Any]:
    @wraps(real.rule)
    def rule(*given: Any, **named: Any) -> Any:
        real.asked += 1
        answer = wrong(real, *given, **named)
        if pure and answer != real(*given, **named):
            real.differs()
        return answer

    return rule


def _holders(owner: type | ModuleType, name: str, value: object) -> list[Any]:
    """The owner, and for a function of a module every module of the project that imported it by name."""
    if isinstance(owner, type):
        return [owner]
    _import_everything()
    modules = [m for key, m in list(sys.modules.items()) if key.startswith(ROOMS)]
    return [module for module in modules if vars(module).get(name) is value]


def _import_everything() -> None:
    """A module that is first imported while a rule is swapped would keep the wrong one."""
    for room in ROOMS:
        for found in pkgutil.walk_packages(import_module(room).__path__, f"{room}."):
            import_module(found.name)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A protocol bug that must be caught.

    Attributes:
        number: with an ``R`` if it is required, and a letter where one bug has several forms.
        broken: the rule that is broken, in one sentence.
        source: where such a bug is known from.
        scenario: the one that shows it best; it is played before all others.
        tests: unit tests that must fail, for a bug that no history of honest nodes shows.
        profiles: which kinds of simulated runs can show it.
        layers: which layers reach the rule at all; the others are not run.
        masked_by: the other defence, in words, that hides it; such a mutant may survive if ``pair`` does not.
        pair: this bug with that other defence removed as well.
    """

    number: str
    name: str
    broken: str
    source: str
    swaps: tuple[Swap, ...]
    scenario: str = ""
    tests: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ("swarm",)
    layers: tuple[Layer, ...] = tuple(Layer)
    masked_by: str = ""
    pair: Mutant | None = None

    @property
    def is_required(self) -> bool:
        """Whether a build fails if it does not kill this mutant, even with an explanation."""
        return self.number.startswith("R")

    @property
    def bug(self) -> str:
        """The number of the bug, without the letter of its form."""
        return self.number.rstrip("abc")

    @contextmanager
    def applied(self) -> Iterator[tuple[Real, ...]]:
        """Run with this bug. Yields the real rules with their counts."""
        with ExitStack() as swaps:
            yield tuple(swaps.enter_context(swap.applied()) for swap in self.swaps)


MUTANTS: list[Mutant] = []
"""Every mutant of the modules that were imported so far."""


def mutant(
    owner: type | ModuleType, name: str, scenario: str = "", *, tests: str = "", pure: bool = True, **given: str
) -> Callable[[Wrong], Wrong]:
    """Declare a mutant by its wrong rule, whose docstring says ``number: name (source).`` and what is broken."""
    named = {key: tuple(value.split()) for key, value in given.items()}
    layers = tuple(Layer(each) for each in named.pop("layers", tuple(Layer)))

    def declare(wrong: Wrong) -> Wrong:
        head, broken = inspect.cleandoc(wrong.__doc__ or "").split("\n\n")
        number, title, source = re.fullmatch(r"(\w+): (.*?) \((.*)\)\.", head.replace("\n", " ")).groups()  # type: ignore[union-attr]
        swaps, texts = (Swap(owner, name, wrong, pure),), (number, title, broken, source)
        MUTANTS.append(Mutant(*texts, swaps, scenario, tuple(tests.split()), layers=layers, **named))
        return wrong

    return declare
