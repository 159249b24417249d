"""Which operation of a faulty disk fails, is rejected for lack of space, or is slow.

Invariant: a rule fires for the operations and names it states and counts every time it does; no rule, no fault.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass
from fnmatch import fnmatch

from faults.disk_tree import failure

OPERATIONS = frozenset({"read", "write", "fsync", "create", "truncate", "rename", "remove"})
"""`fsync` is that of files and of folders; a folder's path ends with a slash."""


@dataclass(slots=True, kw_only=True)
class Rule:
    """One fault, as it is sent to the disk: what, where, how often, and what happens."""

    operation: str
    paths: str = "*"
    """Shell pattern over the whole path within the disk, which begins with a slash."""
    error: str = ""
    """Name of an errno (`EIO`, `ENOSPC`); empty: the operation succeeds, perhaps late."""
    delay_ms: float = 0.0
    skip: int = 0
    """How many matching operations pass first."""
    times: int | None = None
    """How many operations it hits; None: all."""
    hits: int = 0
    first_hit_s: float | None = None
    """When it first fired, on the machine's monotonic clock."""

    def __post_init__(self) -> None:
        assert self.operation in OPERATIONS, f"{self.operation} is none of {sorted(OPERATIONS)}"
        assert not self.error or hasattr(errno, self.error), f"{self.error} is no errno"

    def takes(self, operation: str, path: str) -> bool:
        """Whether the rule applies to this operation; counts it."""
        if operation != self.operation or not fnmatch(path, self.paths) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        self.hits += 1
        self.first_hit_s = self.first_hit_s or time.monotonic()
        return True

    def failure(self, path: str) -> OSError | None:
        if not self.error:
            return None
        return failure(getattr(errno, self.error), path)
