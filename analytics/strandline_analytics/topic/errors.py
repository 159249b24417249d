"""How a reader or writer of a topic reports what is wrong: the option or column, what was found, and what helps.

Invariant: the message begins with the name of the option or column as the user spells it.
"""

from __future__ import annotations

from typing import Self


class TopicFailed(Exception):
    """A topic cannot be read or written as asked."""

    def __init__(self, option: str, found: str, remedy: str, *, kind: str = "option") -> None:
        super().__init__(f"{kind} {option}: {found}; {remedy}")

    @classmethod
    def of_column(cls, column: str, found: str, remedy: str) -> Self:
        """What is wrong with a column of the rows to be written."""
        return cls(column, found, remedy, kind="column")
