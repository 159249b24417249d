"""How many descriptors a service may use: as many as the machine allows, not what a shell gives a program by default.

Invariant: nothing of ours waits with `select`, for whose sake the soft limit is usually 1,024.
"""

from __future__ import annotations

import resource


def raise_open_file_limit() -> int:
    """Raise this process's soft limit of open files to its hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
