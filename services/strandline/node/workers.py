"""The workers of one machine: separate data nodes, whose ids, ports and directories follow a rule.

Worker k of N, counted from 0, has the id ``node_id`` + k, every port in the settings plus k, the directory ``worker-k``
below ``data_dir``, and the rack of the machine. All other settings are the same for all workers. In the file names of a
certificate, ``{node_id}`` is replaced by the worker's id.

Invariant: all workers of a machine have the same rack, so that with at least as many racks as replicas no partition has
two replicas on one machine (`core.planning.layout`).
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from strandline.node.settings import ReplicaSettings
from strandline.rpc.channels import parse_endpoint
from strandline.storage.directory import META_NAME

_PORTS = ("bind", "internal_bind", "health_bind", "metrics_bind", "advertise", "internal_advertise")
_LISTENING = _PORTS[:4]
_CERTIFICATES = ("tls_cert", "tls_key")
_ID = "{node_id}"
_LAST_PORT = 65_535


class WorkersWrong(Exception):
    """The settings do not allow several workers; the message names the setting, the rule and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One worker, with the settings that differ from the supervisor's."""

    node_id: int
    directory: Path
    settings: dict[str, str]


def workers_of(settings: ReplicaSettings) -> list[Worker]:
    """The workers that the settings ask for.

    Raises:
        WorkersWrong: their ports would collide, a certificate would be shared, or the directory holds other nodes.
    """
    _check_ports(settings)
    _check_certificates(settings)
    _check_directory(settings.data_dir, settings.workers)
    return [_worker(settings, number) for number in range(settings.workers)]


def single_node_refusal(data_dir: Path) -> str:
    """Why a single node may not use a directory, because it holds workers; empty if it may."""
    held = _workers_in(data_dir)
    if not held:
        return ""
    return (
        f"{data_dir} holds the directories of {len(held)} workers ({held[0].name}, ...), and one node would begin "
        f"with nothing beside them. Start it with --workers {_number(held[-1]) + 1}, or give another --data-dir"
    )


def _worker(settings: ReplicaSettings, number: int) -> Worker:
    node_id = settings.node_id + number
    directory = settings.data_dir / f"worker-{number}"
    own = {
        "workers": "1",
        "node_id": str(node_id),
        "data_dir": str(directory),
        "rack": settings.rack or socket.gethostname(),
    }
    own |= {name: _moved(value, number) for name in _PORTS if (value := getattr(settings, name))}
    own |= {name: value.replace(_ID, str(node_id)) for name in _CERTIFICATES if (value := getattr(settings, name))}
    return Worker(node_id=node_id, directory=directory, settings=own)


def _port(text: str) -> int:
    """The port in an address; 0 if the kernel chooses it, or if there is none."""
    named = re.search(r":(\d+)$", text)
    return int(named.group(1)) if named else 0


def _moved(text: str, by: int) -> str:
    port = _port(text)
    return f"{text.rpartition(':')[0]}:{port + by}" if port else text


def _check_ports(settings: ReplicaSettings) -> None:
    first = {name: port for name in _PORTS if (port := _port(getattr(settings, name)))}
    for name, port in first.items():
        if port + settings.workers - 1 > _LAST_PORT:
            raise WorkersWrong(
                f"setting {name}: worker k listens on port {port} + k, and {settings.workers} workers would go beyond "
                f"{_LAST_PORT}; give a lower port or fewer workers"
            )
    hosts = {name: parse_endpoint(getattr(settings, name)).host for name in first if name in _LISTENING}
    for one, other in _pairs(sorted(hosts, key=lambda name: first[name])):
        if first[other] - first[one] < settings.workers and _may_meet(hosts[one], hosts[other]):
            raise WorkersWrong(
                f"settings {one} and {other}: {settings.workers} workers listen on ports {first[one]} to "
                f"{first[one] + settings.workers - 1}, among them {first[other]}; put {settings.workers} or more "
                "between them"
            )


def _pairs(names: list[str]) -> Iterator[tuple[str, str]]:
    return ((one, other) for place, one in enumerate(names) for other in names[place + 1 :])


def _may_meet(one: str, other: str) -> bool:
    return one == other or bool({one, other} & {"0.0.0.0", "::", "*"})


def _check_certificates(settings: ReplicaSettings) -> None:
    for name in _CERTIFICATES:
        value = getattr(settings, name)
        if value and _ID not in value:
            raise WorkersWrong(
                f"setting {name}: a certificate names one node, and {settings.workers} workers are as many nodes; "
                f"write {_ID} where the id stands in the names of their files, for example certs/node-{_ID}/tls.crt"
            )


def _check_directory(data_dir: Path, workers: int) -> None:
    if (data_dir / META_NAME).exists():
        raise WorkersWrong(
            f"setting data_dir: {data_dir} is the directory of one node, and workers have directories below it; "
            "give another one, and let the replicas of the old node move (docs/OPERATIONS.md, Workers)"
        )
    left = [path for path in _workers_in(data_dir) if _number(path) >= workers]
    if left:
        raise WorkersWrong(
            f"setting workers: {left[-1]} holds a node that {workers} workers would not start, and what it replicates "
            f"would lack a replica; start {_number(left[-1]) + 1}, or, if no partition is placed on "
            "that node, remove it (strandline node remove) and its directory (docs/OPERATIONS.md, Workers)"
        )


def _workers_in(data_dir: Path) -> list[Path]:
    found = (path for path in data_dir.glob("worker-*") if (path / META_NAME).exists())
    return sorted((path for path in found if path.name.removeprefix("worker-").isdecimal()), key=_number)


def _number(path: Path) -> int:
    return int(path.name.removeprefix("worker-"))


# ---- supervisor
# One process starts, stops and watches the workers of a machine.
#
# Invariant: they start and end together: a signal reaches all, the end of one ends the others, and none outlives the
# supervisor (on Linux, where the kernel sends SIGTERM to a worker whenever the supervisor ends).

_PR_SET_PDEATHSIG = 1
_GRACE_S = 5.0
"""Time after a worker's own deadline for its shutdown, until it is killed."""
_OF_SIGNALS = 128
"""Added, as in shells, to the number of a signal that ended a worker."""


class Supervisor:
    """The processes of some workers. `run` is called once, from the main thread of a process without other threads."""

    def __init__(self, workers: Sequence[Worker], arguments: Sequence[str], *, shutdown_deadline_s: float) -> None:
        """Prepare to run the workers.

        Args:
            arguments: those of `strandline replica`, to which each worker's own settings are added.
            shutdown_deadline_s: how long a worker may take for its shutdown, in seconds.
        """
        self._workers = workers
        self._arguments = arguments
        self._grace_s = shutdown_deadline_s + _GRACE_S
        self._running: dict[int, tuple[Worker, subprocess.Popen[bytes]]] = {}
        self._is_ending = False

    def run(self) -> int:
        """Start all workers, and return when all have ended: the code of the first that ended without being asked to,
        else the first code that is not 0."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, lambda *_: self._send(signal.SIGKILL))
        for worker in self._workers:
            if not self._is_ending:
                self._start(worker)
        return self._wait()

    def _start(self, worker: Worker) -> None:
        own = (part for name, value in worker.settings.items() for part in (f"--{name.replace('_', '-')}", value))
        process = subprocess.Popen(
            [sys.executable, "-m", "strandline.node", *self._arguments, *own],
            stdin=subprocess.DEVNULL,
            # So that a Ctrl-C reaches only the supervisor, which forwards it: a second one would prevent a clean stop.
            start_new_session=True,
            preexec_fn=_ends_with(os.getpid()),
        )
        self._running[process.pid] = worker, process
        if self._is_ending:
            # The signal arrived while this worker was being started.
            os.kill(process.pid, signal.SIGTERM)

    def _wait(self) -> int:
        codes: list[int] = []
        while self._running:
            pid, status = os.wait()
            ended = self._running.pop(pid, None)
            if ended is None:
                continue
            code = os.waitstatus_to_exitcode(status)
            ended[1].returncode = code
            codes.append(code if code >= 0 else _OF_SIGNALS - code)
            if not self._is_ending:
                self._say(f"worker {ended[0].directory.name} (node {ended[0].node_id}) ended with code {codes[-1]}")
                self._end(signal.SIGTERM)
                return self._wait_for_others(codes[0])
        return next((code for code in codes if code), 0)

    def _wait_for_others(self, code: int) -> int:
        self._wait()
        return code

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._end(signal.Signals(number))

    def _end(self, number: signal.Signals) -> None:
        self._is_ending = True
        signal.setitimer(signal.ITIMER_REAL, self._grace_s)
        self._send(number)

    def _send(self, number: signal.Signals) -> None:
        for pid in list(self._running):
            # A worker that has ended but was not yet waited for still has its process id.
            os.kill(pid, number)

    def _say(self, line: str) -> None:
        with suppress(OSError):
            print(f"strandline: {line}; the other workers of this machine are stopped", file=sys.stderr, flush=True)  # noqa: T201


def _ends_with(parent: int) -> Callable[[], None]:
    """A function that a child runs before it becomes a worker, so that it gets SIGTERM when its parent ends."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def tie() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            # The parent ended before that was set up.
            os._exit(1)

    return tie
