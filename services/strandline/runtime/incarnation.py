"""How another program on the machine distinguishes one of our processes from a later one with the same number.

Invariant: a process id alone proves nothing; in a container every service is process 1. With the moment at which the
kernel started it, it means one process and no other.
"""

from __future__ import annotations

from pathlib import Path

_STARTED_AT = 19
"""Place of `starttime` behind the name in /proc/PID/stat (proc(5), field 22)."""


def started_ticks(pid: int) -> int | None:
    """When the kernel started a process, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may hold anything, including blanks and parentheses.
    return int(stat.rpartition(")")[2].split()[_STARTED_AT])
