"""Patterns in RE2's syntax, matched by RE2 itself: linear time in the text, bounded memory (G23)."""

from __future__ import annotations

from collections.abc import Callable

import re2

_MEMORY_BYTES = 1 << 20


class Re2Patterns:
    """Matches topic names for the groups of a node (`core.groups.subscriptions.PatternEngine`)."""

    def __init__(self) -> None:
        self._options = re2.Options()
        self._options.log_errors = False
        self._options.max_mem = _MEMORY_BYTES
        self._options.never_nl = True

    def compile(self, pattern: str) -> Callable[[str], bool]:
        """A function that returns whether a whole name matches ``pattern``.

        Raises:
            ValueError: RE2 refuses the pattern; the message is RE2's.
        """
        try:
            compiled = re2.compile(pattern, self._options)
        except re2.error as error:
            reason = error.args[0] if error.args else "malformed"
            raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
        return lambda name: compiled.fullmatch(name) is not None
