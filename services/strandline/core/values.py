"""Decides how an event or an effect is built that is made for every record, or for every fetch.

Invariant: nobody changes one once it is made. The type checker refuses it, as it does for a frozen dataclass; nothing
guards it at run time, because such a guard makes each of them four to seven times as dear to build.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a dataclass with slots, equality and a hash, whose fields are set once, by its constructor."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
