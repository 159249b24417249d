"""A verb of the scenario language: its name, its arguments and what it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strandline.sim.scenario.call import Call


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of the language: its name, what it does, and the options it knows (``name=value``)."""

    name: str
    run: Callable[[Call], None]
    options: tuple[str, ...] = ()
