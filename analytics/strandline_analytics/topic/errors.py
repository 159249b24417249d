"""How a reader of a topic hears what is wrong: the option that it set, what was found, and what helps.

Invariant: the message begins with the option's name as the user spells it.
"""

from __future__ import annotations


class TopicReadFailed(Exception):
    """A topic cannot be read as asked."""

    def __init__(self, option: str, found: str, remedy: str) -> None:
        super().__init__(f"option {option}: {found}; {remedy}")
