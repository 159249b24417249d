"""What a forked process may do with gRPC: everything if its parent had not used it yet, otherwise nothing.

Invariant: no client waits for threads that stayed behind in the parent. gRPC's threads do not exist in a forked child,
and nothing starts them there again, so that a call would wait for its whole deadline and end as "no answer".
"""

from __future__ import annotations

import gc
import os

_user_pid: int | None = None


class ForkedAfterUse(RuntimeError):
    """This process was forked from one that had already used gRPC, and therefore cannot use it."""


def note_use() -> None:
    """This process is about to use gRPC.

    Raises:
        ForkedAfterUse: its parent did so before the fork.
    """
    global _user_pid
    if _user_pid is None:
        _user_pid = os.getpid()
    check()


def check() -> None:
    """Raise if gRPC was used before this process was forked.

    Raises:
        ForkedAfterUse: it was.
    """
    if _user_pid is not None and _user_pid != os.getpid():
        raise ForkedAfterUse(
            f"process {os.getpid()} was forked after its parent {_user_pid} had used gRPC, which cannot work here; "
            f"start the first client after the fork (in gunicorn: in the worker), or start processes by "
            f"multiprocessing.get_context('spawn')"
        )


def _keep_the_parents() -> None:
    # The end of a channel waits for gRPC's threads, even that of a client which the parent had closed. They are not
    # here, so the first collection of garbage would never return; now it leaves alone what was there at the fork.
    if _user_pid is not None:
        gc.freeze()


os.register_at_fork(after_in_child=_keep_the_parents)
