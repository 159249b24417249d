"""What a collector costs at a Kafka cluster of many partitions: questions and bytes a look, and its processor time.

The collector is the command, in a process of its own; the brokers are the fake ones of the tests, which write each
answer once and then send it again, so that they take next to no time of the same processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from kept import DOCS, keep, measured_commit

if (_KAFKA := str(Path(__file__).parents[1] / "kafka")) not in sys.path:
    # Where the fake brokers are.
    sys.path.append(_KAFKA)

from fake_kafka import FakeCluster, Part

NODES, TOPICS = (1, 2, 3), 100
FOR_S = 60


class RepeatingCluster(FakeCluster):
    """Answers a question that was asked before with the bytes of then; nothing changes in it."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.ids = {f"topic-{number:03}": f"00000000-0000-0000-0000-{number:012}" for number in range(TOPICS)}
        self.min_isr = dict.fromkeys(self.ids, "2")
        self.parts = {(name, index): _part(index) for name in self.ids for index in range(partitions // TOPICS)}
        self.sent: Counter[str] = Counter()
        """Questions, bytes asked and bytes answered."""
        self._known: dict[tuple[int, bytes], bytes] = {}

    async def serve(self, node: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                question = frame[:4] + frame[8:]
                if (node, question) not in self._known:
                    self._known[node, question] = self.answer_to(node, frame)[4:]
                content = frame[4:8] + self._known[node, question]
                self.sent += Counter(questions=1, asked=size + 4, answered=len(content) + 4)
                writer.write(struct.pack(">i", len(content)) + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def _part(index: int) -> Part:
    replicas = [NODES[(index + step) % len(NODES)] for step in range(len(NODES))]
    return Part(replicas[0], 1, replicas, replicas, 1_000, dict.fromkeys(NODES, 1_000))


async def _measured(partitions: int, out: Path) -> dict[str, float]:
    cluster = RepeatingCluster(partitions)
    servers = []
    for node in NODES:
        server = await asyncio.start_server(lambda r, w, node=node: cluster.serve(node, r, w), "127.0.0.1", 0)
        cluster.brokers[node] = server.sockets[0].getsockname()[1]
        servers.append(server)
    command = [sys.executable, "-m", "strandline.cli", "analytics", "collect", "kafka", "--for", f"{FOR_S}s"]
    where = ["--bootstrap", f"127.0.0.1:{cluster.brokers[1]}", "--out", str(out)]
    cpu_s, peak_mib = await asyncio.to_thread(_collect, [*command, *where])
    for server in servers:
        server.close()
    return {"cpu_s": cpu_s, "mib": peak_mib, **cluster.sent}


def _collect(command: list[str]) -> tuple[float, float]:
    """Seconds of processor time and MiB at most of the command."""
    with subprocess.Popen(command) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the collector ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _said_by(out: Path) -> dict[str, float]:
    """What the export says of its looks, and how large it is."""
    (source,) = out.rglob("_source/kafka.json")
    said = json.loads(source.read_text())
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return {"looks": said["looks"], "period_ms": said["period_ms"], "bytes": size}


def text_of(partitions: int, found: dict[str, float]) -> str:
    """The measurement in sentences."""
    looks, brokers = found["looks"], len(NODES)
    return (
        f"At {partitions:,} partitions in three replicas on {brokers} brokers a look comes every "
        f"{found['period_ms']:,} ms.\n"
        f"It asks a broker {found['questions'] / looks / brokers:.1f} questions, "
        f"{found['asked'] / looks / brokers / 1024:,.0f} KiB, and is answered "
        f"{found['answered'] / looks / brokers / 1024:,.0f} KiB.\n"
        f"The collector itself uses "
        f"{found['cpu_s'] / looks:.2f} s of processor time a look, start and end included "
        f"({found['cpu_s'] / FOR_S:.0%} of a core), {found['mib']:.0f} MiB at most, and writes "
        f"{found['bytes'] / looks / 1024:,.0f} KiB a look; commit {measured_commit()}, against fake brokers, "
        f"{int(looks)} looks."
    )


def main() -> None:
    """Measure, and write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "looks"
        found = asyncio.run(_measured(asked.partitions, out)) | _said_by(out)
    text = text_of(asked.partitions, found)
    sys.stdout.write(text + "\n")
    keep("collector", text, asked.docs)


if __name__ == "__main__":
    main()
