"""Members of etcd on loopback, as child processes: for `strandline up --controllers 3`, and for tests.

Invariant: `close` ends every member that was started, by its process id.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from strandline.core.messages import Endpoint

PROGRAM = "etcd"
HOW_TO_INSTALL = "etcd is not installed; on Debian: apt-get install etcd-server"
# A member that lost its leader waits 0.5 to 1 s, half of etcd's default. A new leader restarts every lease, so a
# controller whose machine died together with etcd's leader is replaced only after this wait and a whole lease.
ELECTION_ARGUMENTS = ("--heartbeat-interval", "50", "--election-timeout", "500")
_END_S = 10.0


def is_installed() -> bool:
    """Whether etcd is installed."""
    return shutil.which(PROGRAM) is not None


class Members:
    """The members of one cluster, each with a directory below ``directory``."""

    def __init__(self, directory: Path, count: int = 3, *, arguments: Sequence[str] = (), scheme: str = "http") -> None:
        """``arguments`` are passed to every member unchanged; ``scheme`` is https if they name certificates."""
        self._scheme = scheme
        self._directory = directory
        self._arguments = tuple(arguments)
        ports = _ports(directory, 2 * count)
        self.endpoints = tuple(Endpoint("127.0.0.1", port) for port in ports[:count])
        self._peers = ports[count:]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * count

    def start(self) -> None:
        """Start every member; they serve once a majority is connected."""
        for index in range(len(self.endpoints)):
            self.start_member(index)

    def start_member(self, index: int) -> None:
        """Start one member, from its data if it ran before."""
        name = f"etcd-{index + 1}"
        directory = self._directory / name
        directory.mkdir(parents=True, exist_ok=True)
        client = f"{self._scheme}://127.0.0.1:{self.endpoints[index].port}"
        peer = f"http://127.0.0.1:{self._peers[index]}"
        cluster = ",".join(f"etcd-{n + 1}=http://127.0.0.1:{port}" for n, port in enumerate(self._peers))
        command = [
            PROGRAM, "--name", name, "--data-dir", str(directory / "data"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", cluster, "--initial-cluster-state", "new", "--initial-cluster-token", "strandline",
            "--auto-compaction-mode", "periodic", "--auto-compaction-retention", "30m",
            *ELECTION_ARGUMENTS, *self._arguments,
        ]  # fmt: skip
        with (directory / "log").open("ab") as log:
            self._processes[index] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def pid(self, index: int) -> int:
        """The process id of one member."""
        process = self._processes[index]
        assert process is not None, f"member {index} was not started"
        return process.pid

    def kill(self, index: int) -> None:
        """End one member at once."""
        self.send(index, signal.SIGKILL)
        process = self._processes[index]
        assert process is not None
        process.wait()

    def send(self, index: int, number: signal.Signals) -> None:
        """Send one member a signal."""
        process = self._processes[index]
        assert process is not None, f"member {index} was not started"
        process.send_signal(number)

    def close(self) -> None:
        """End every member."""
        with ExitStack() as ends:
            for process in self._processes:
                if process is not None and process.poll() is None:
                    ends.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    # A stopped process handles no other signal.
    process.send_signal(signal.SIGCONT)
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ports(directory: Path, count: int) -> list[int]:
    """The ports of these members, chosen only once, because etcd stores its own addresses."""
    file = directory / "ports.json"
    if file.exists():
        kept: list[int] = json.loads(file.read_text(encoding="utf-8"))
        return kept
    directory.mkdir(parents=True, exist_ok=True)
    ports = _free_ports(count)
    file.write_text(json.dumps(ports) + "\n", encoding="utf-8")
    return ports


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; they are fixed in advance, because the members must know each other's."""
    with ExitStack() as sockets:
        opened = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]
