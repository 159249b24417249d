"""The clients in their pod: their commands, and their recorded histories, as far as they are known here.

Invariant: their histories are judged by their own clock, which is one for all of them; nothing here adds a time of its
own. They are the clients of tests/chaos, in one pod.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from harness.history_file import operations
from kubectl import CLIENTS, NAMESPACE, Failed, in_namespace, kubectl, strandline, until

from strandline_sim.checks.history import Anomaly, anomalies

TOPIC, PARTITIONS, REPLICATION = "tides", 3, 3
_HISTORY = "/histories/clients.jsonl"
_ROOT = Path(__file__).resolve().parents[3]
_FILES = (
    *(f"tests/chaos/harness/{name}.py" for name in ("load_worker", "history_file", "stale_client", "tokens")),
    "services/strandline_sim/checks/history.py",
)
_PAUSE_S = 0.02
"""Of a producer between two records: two producers, so 100 records per second."""


class Clients:
    """Two producers with acks=all, a tailing consumer, a seeking consumer, a client that requests the ends."""

    def __init__(self, directory: Path, image: str) -> None:
        self._history = directory / "history.jsonl"
        self._image = image
        self._said: Queue[dict[str, Any]] = Queue()
        self._worker: subprocess.Popen[bytes] | None = None
        self._tail: subprocess.Popen[bytes] | None = None
        self._position = 0
        self._acks: dict[int, list[float]] = defaultdict(list)
        self._partition_of: dict[tuple[str, int], int] = {}
        self._now_s = 0.0

    def start(self, manifest: Path) -> None:
        """Deploys the pod, creates the topic, starts the clients."""
        files = [f"--from-file={_ROOT / name}" for name in _FILES]
        made = in_namespace("create", "configmap", "clients", *files, "--dry-run=client", "--output", "yaml")
        in_namespace("apply", "--filename", "-", given=made)
        described = manifest.read_text().replace("image: strandline\n", f"image: {self._image}\n")
        kubectl("apply", "--filename", "-", given=described)
        in_namespace("wait", "--for=condition=Ready", f"pod/{CLIENTS}", "--timeout=120s")
        until(
            lambda: len([n for n in strandline("node", "list") if n["state"] == "serving"]) >= REPLICATION,
            "3 nodes",
            60,
        )
        in_namespace(
            *("exec", CLIENTS, "--", "strandline", "topic", "create", TOPIC),
            *("--partitions", str(PARTITIONS), "--replication-factor", str(REPLICATION), "-c", "min.insync.replicas=2"),
        )
        in_sync()
        self._start_worker()

    def _start_worker(self) -> None:
        strict = {"topic": TOPIC, "acks": -1, "pause_s": _PAUSE_S}
        wanted = {
            "bootstrap": "strandline:9092",
            "topics": {TOPIC: PARTITIONS},
            "history": _HISTORY,
            "seed": 1,
            "producers": {"p0": strict, "p1": strict},
            "consumers": ["c0"],
            "seekers": ["seeker"],
            "stale": None,
            "asks_ends": True,
            "tls": {},
        }
        inside = ["kubectl", "-n", NAMESPACE, "exec", "-i", CLIENTS, "--"]
        # For it alone: with a part of `strandline_sim` the command line would look for that package's commands.
        worker = [
            *inside,
            "env",
            "PYTHONPATH=/clients",
            "python",
            "/clients/harness/load_worker.py",
            json.dumps(wanted),
        ]
        self._worker = subprocess.Popen(worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        Thread(target=self._listen, daemon=True).start()
        self._hear("running", 90)
        with self._history.open("wb") as sink:
            tail = ["kubectl", "-n", NAMESPACE, "exec", CLIENTS, "--", "tail", "-n", "+1", "-f", _HISTORY]
            self._tail = subprocess.Popen(tail, stdin=subprocess.DEVNULL, stdout=sink)

    def _listen(self) -> None:
        assert self._worker is not None and self._worker.stdout is not None
        for line in self._worker.stdout:
            self._said.put(json.loads(line))
        self._said.put({"ended": True})

    def _hear(self, word: str, timeout_s: float) -> None:
        while True:
            try:
                said = self._said.get(timeout=timeout_s)
            except Empty:
                raise Failed(f"the clients did not say '{word}' within {timeout_s:g} s") from None
            if word in said:
                return
            if "ended" in said:
                raise Failed(f"the clients ended before they said '{word}'")

    def now_s(self) -> float:
        """The newest time of the clients' clock that has arrived here."""
        self._look()
        return self._now_s

    def _look(self) -> None:
        with self._history.open("rb") as source:
            source.seek(self._position)
            whole = source.read().rpartition(b"\n")[0]
        if not whole:
            return
        self._position += len(whole) + 1
        for line in whole.split(b"\n"):
            if line.startswith(b'["sen'):
                self._take(json.loads(line))

    def _take(self, row: list[Any]) -> None:
        self._now_s = max(self._now_s, row[1])
        if row[0] == "send":
            self._partition_of[row[2], row[3]] = row[5]
        elif row[4] == "ok":
            self._acks[self._partition_of[row[2], row[3]]].append(row[1])

    def acked_since(self, since_s: float, count: int = 20, timeout_s: float = 60.0) -> float:
        """Waits for this many acknowledgements after a time in every partition; returns the clients' time then."""

        def look() -> bool:
            self._look()
            return all(sum(at > since_s for at in self._acks[index][-200:]) >= count for index in range(PARTITIONS))

        until(look, f"{count} acknowledgements in each partition", timeout_s)
        return self._now_s

    def longest_gap_s(self, since_s: float, until_s: float) -> tuple[float, int]:
        """The longest time without an acknowledgement in one partition between two moments, and which partition."""
        self._look()
        gaps = []
        for index in range(PARTITIONS):
            within = sorted(at for at in self._acks[index] if since_s <= at <= until_s)
            times = [since_s, *within, until_s]
            gaps.append((max(after - before for before, after in pairwise(times)), index))
        return max(gaps)

    def acknowledged(self) -> int:
        """How many records have been acknowledged so far."""
        self._look()
        return sum(map(len, self._acks.values()))

    def finish(self) -> list[Anomaly]:
        """Ends the load, reads everything once more, and checks the history."""
        self._tell({"stop": True})
        self._hear("produced", 120)
        self._tell({"finish": {TOPIC: until(_ends, "the ends of the partitions are known", 60)}})
        self._hear("done", 240)
        with self._history.open("wb") as sink:  # all of it, now that no client writes
            command = ["kubectl", "-n", NAMESPACE, "exec", CLIENTS, "--", "cat", _HISTORY]
            subprocess.run(command, stdout=sink, check=True, timeout=120)
        return anomalies(operations([self._history], [TOPIC], frozenset()))

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._worker is not None and self._worker.stdin is not None
        self._worker.stdin.write(json.dumps(command).encode() + b"\n")
        self._worker.stdin.flush()

    def close(self) -> None:
        """Ends the processes here."""
        for process in (self._tail, self._worker):
            if process is not None:
                process.kill()
                process.wait()


def partitions() -> list[dict[str, Any]]:
    """What the controller has committed of each partition of the topic."""
    rows = [row for row in strandline("topic", "describe", TOPIC) if row["topic"] == TOPIC]
    return sorted(rows, key=lambda row: row["partition"])


def in_sync(timeout_s: float = 120.0) -> None:
    """Waits until every partition has all its replicas in the ISR."""
    until(
        lambda: all(len(row["isr"]) == len(row["replicas"]) and row["leader"] is not None for row in partitions()),
        "all replicas are in sync",
        timeout_s,
    )


def _ends() -> list[int] | None:
    rows = [row for row in strandline("cluster", "status", "--all")["partitions"] if row["topic"] == TOPIC]
    rows.sort(key=lambda row: row["partition"])
    settled = len(rows) == PARTITIONS and all(row["leo"] == row["high_watermark"] is not None for row in rows)
    return [row["leo"] for row in rows] if settled else None
