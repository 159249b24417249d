"""Value types that are cheap to build, for events and effects made for every record or every fetch.

Invariant: a value never changes once it is made. The type checker refuses it, as for a frozen dataclass; nothing
guards it at run time, because such a guard makes each of them four to seven times as expensive to build.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a dataclass with slots, equality and a hash, whose fields are set once, by its constructor."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
