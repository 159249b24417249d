"""What code costs in calls of Python functions, a number that no busy machine changes."""

from __future__ import annotations

import sys
from types import FrameType


class CountedCalls:
    """Notes the names of the functions that are called, or go on, within its block."""

    def __enter__(self) -> list[str]:
        self.calls: list[str] = []
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self.calls

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)
        # This call itself.
        self.calls.pop()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.calls.append(frame.f_code.co_qualname)
