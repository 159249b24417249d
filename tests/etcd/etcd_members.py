"""Members of etcd for a test, which is skipped by name where there is no etcd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from strandline.core.messages import Endpoint
from strandline.etcd.client import Etcd
from strandline.etcd.members import HOW_TO_INSTALL, Members, is_installed
from strandline.rpc.channels import target

READY_S = 20.0
_LOOK_S = 0.05


@contextmanager
def started(
    directory: Path, count: int = 3, *, arguments: Sequence[str] = (), scheme: str = "http"
) -> Iterator[Members]:
    """Members that are ended with the block."""
    if not is_installed():
        pytest.skip(HOW_TO_INSTALL)
    quiet = ("--logger", "zap", "--log-level", "error")
    members = Members(directory, count, arguments=(*quiet, *arguments), scheme=scheme)
    members.start()
    try:
        yield members
    finally:
        members.close()


@asynccontextmanager
async def client_of(endpoints: Sequence[Endpoint], **given: Any) -> AsyncIterator[Etcd]:
    """A client, which is closed with the block."""
    client = Etcd(endpoints, **given)
    try:
        yield client
    finally:
        await client.close()


def until_healthy(members: Members) -> None:
    """Return when every member has met a majority, as etcd's own page says; for a fixture that has no event loop."""
    deadline_s = time.monotonic() + READY_S
    for endpoint in members.endpoints:
        while not _is_healthy(endpoint):
            assert time.monotonic() < deadline_s, f"etcd at {target(endpoint)} is not healthy after {READY_S:g} s"
            time.sleep(_LOOK_S)


def _is_healthy(endpoint: Endpoint) -> bool:
    try:
        with urlopen(f"http://{target(endpoint)}/health", timeout=1.0) as answer:
            return bool(json.load(answer)["health"] == "true")
    except OSError:
        return False


@contextmanager
def stopped(members: Members, *indexes: int) -> Iterator[None]:
    """Members that neither answer nor close a connection within the block."""
    for index in indexes:
        members.send(index, signal.SIGSTOP)
    try:
        for index in indexes:
            _until_still(members.pid(index))
        yield
    finally:
        for index in indexes:
            members.send(index, signal.SIGCONT)


def others_stopped(members: Members, etcd: Etcd) -> AbstractContextManager[None]:
    """Members stopped, all but the one that a client asks."""
    return stopped(members, *(n for n, endpoint in enumerate(members.endpoints) if endpoint != etcd.member))


def _until_still(pid: int) -> None:
    """Return when every thread has stopped: until then one that is on a processor may answer another call."""
    deadline_s = time.monotonic() + READY_S
    while any(_state(task) != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline_s, f"process {pid} goes on {READY_S:g} s after SIGSTOP"
        time.sleep(0.001)


def _state(task: Path) -> str:
    try:
        # The name before it may have spaces and parentheses.
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        # A thread that ended meanwhile answers nothing either.
        return "T"


def etcdctl(members: Members, *words: str) -> str:
    """What etcd's own command prints."""
    command = ["etcdctl", "--endpoints", target(members.endpoints[0]), *words]
    environment = {**os.environ, "ETCDCTL_API": "3"}
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60, env=environment).stdout
