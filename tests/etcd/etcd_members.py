"""Members of etcd for a test, which is skipped by name where there is no etcd."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.etcd.members import HOW_TO_INSTALL, Members, is_installed

READY_S = 20.0


@contextmanager
def started(directory: Path, count: int = 3, *, arguments: Sequence[str] = ()) -> Iterator[Members]:
    """Members that are ended with the block."""
    if not is_installed():
        pytest.skip(HOW_TO_INSTALL)
    members = Members(directory, count, arguments=("--logger", "zap", "--log-level", "error", *arguments))
    members.start()
    try:
        yield members
    finally:
        members.close()


@contextmanager
def stopped(members: Members, *indexes: int) -> Iterator[None]:
    """Members that neither answer nor close a connection within the block."""
    for index in indexes:
        members.send(index, signal.SIGSTOP)
    try:
        yield
    finally:
        for index in indexes:
            members.send(index, signal.SIGCONT)
