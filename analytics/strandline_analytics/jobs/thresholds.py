"""What `under_min_ms>0` means: a column of a statistic, a unit, a comparison, a number.

Declared columns are in microseconds (`_us`); a condition may name the same column in milliseconds (`_ms`) or seconds
(`_s`). `s10.under_min_ms>0` names the statistic as well.

Invariant: a value that is null fulfils no condition; nothing is known of it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

_SHAPE = re.compile(r"\s*(?:(s\d+)\.)?([a-z_][a-z_0-9]*)\s*(>=|<=|==|!=|>|<|=)\s*(-?\d+(?:\.\d+)?)\s*")
_COMPARES: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}
_IN_US = {"_us": 1, "_ms": 1_000, "_s": 1_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One condition on the rows of a statistic."""

    text: str
    stat: str | None
    name: str
    compare: str
    number: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """Read a condition.

        Raises:
            ValueError: it is none.
        """
        found = _SHAPE.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no condition; write for example 'under_min_ms>0'")
        stat = f"s{int(found[1][1:]):02}" if found[1] else None
        return cls(text=text.strip(), stat=stat, name=found[2], compare=found[3], number=float(found[4]))

    def column(self, columns: Collection[str]) -> tuple[str, int] | None:
        """The declared column that is meant, and how many of its units one of the condition's is."""
        if self.name in columns:
            return self.name, 1
        for suffix, factor in _IN_US.items():
            declared = f"{self.name.removesuffix(suffix)}_us"
            if self.name.endswith(suffix) and declared in columns:
                return declared, factor
        return None

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a row fulfils the condition.

        Raises:
            ValueError: the row has no such column.
        """
        found = self.column(row.keys())
        if found is None:
            raise ValueError(f"{self.text!r}: there is no column {self.name}; there are: {', '.join(row)}")
        value = row[found[0]]
        return value is not None and _COMPARES[self.compare](value, self.number * found[1])
