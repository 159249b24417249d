"""Makes the corpus: what real Kafka nodes and tools of one release leave behind, in the layouts that logs have.

``PYTHONPATH=tests/kafka:tests/kafka/live python tests/kafka/corpus/generate.py 3.9.1`` writes two archives beside this
file and needs Java, Maven and minutes:

- ``3.9.1.tar.xz``: of three nodes, the metadata log, what the release's own tool prints of it, and the logs.
- ``records-3.9.1.tar.xz``: a log and a snapshot of every kind and version of record that the release knows, and what
  its tool prints of them, with its decoder and without. With ``--records`` behind the release only this one is written.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from aiokafka.admin import NewTopic
from kafka_cluster import START_S, KafkaCluster, Release
from kafka_jars import jars_with_log4j, run
from metadata_log_bytes import batch, control
from node_faults import Client, load

_HERE = Path(__file__).resolve().parent
PAUSED, KILLED, STOPPED = 2, 3, 1
PAUSE_S, FETCH_S = 7.0, 600
TOPICS = [
    NewTopic("orders", -1, -1, {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}),
    NewTopic("loose", -1, -1, {0: [1, 2]}, {"min.insync.replicas": "1"}),
]
AGAIN = NewTopic("again", -1, -1, {0: [1, 2, 3]})
"""A topic that is deleted and created again."""
DISTRIBUTION = "[%d] %p %m (%c)%n"
LAYOUTS: dict[str, str] = {
    "strimzi": "%d{yyyy-MM-dd HH:mm:ss} %-5p [%t] %c{1}:%L - %m%n",
    "strimzi-log4j1": "%d{ISO8601} %p %m (%c) [%t]%n",
    "confluent": "[%p] %d [%t] %c %M - %m%n",
    "coloured": "[%d] %highlight{%p} %m (%c)%n",
    "ecs": "",
    "json": "",
}
"""One file each of everything that a node logs, as a container's output has it; node 1 writes all of them."""
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": 6_000}
"""So that every node leaves snapshots."""
SEGMENT, SNAPSHOT = "00000000000000000000.log", "00000000000000000142-0000000001.checkpoint"
PRINTED = {
    "decoder": ["--cluster-metadata-decoder"],
    "skip-record-metadata": ["--cluster-metadata-decoder", "--skip-record-metadata"],
    "print-data-log": ["--print-data-log"],
    "deep-iteration": ["--deep-iteration"],
    "batches": [],
}


def configuration(*, has_all: bool) -> str:
    """The configuration of log4j 2: the three files of the distribution, and the other layouts."""
    plain = f'<PatternLayout pattern="{DISTRIBUTION}"/>'
    layouts = {f"distribution/{name}": plain for name in ("server", "state-change", "controller")}
    if has_all:
        layouts |= {name: f"<PatternLayout pattern={quoteattr(p)} disableAnsi='false'/>" for name, p in LAYOUTS.items()}
        layouts["ecs"] = '<JsonTemplateLayout eventTemplateUri="classpath:EcsLayout.json"/>'
        layouts["json"] = '<JsonLayout compact="true" eventEol="true"/>'
    files = "".join(
        f'<File name="{name}" fileName="logs/{name}.log">{layout}</File>' for name, layout in layouts.items()
    )
    others = "".join(f'<AppenderRef ref="{name}"/>' for name in layouts if "/" not in name)
    loggers = "".join(
        f'<Logger name="{name}" level="{level}" additivity="false"><AppenderRef ref="distribution/{to}"/>{others}'
        "</Logger>"
        for name, level, to in (
            ("state.change.logger", "info", "state-change"),
            ("kafka.controller", "info", "controller"),
            ("org.apache.kafka.controller", "info", "controller"),
        )
    )
    root = f'<Root level="info"><AppenderRef ref="distribution/server"/>{others}</Root>'
    return f"<Configuration><Appenders>{files}</Appenders><Loggers>{loggers}{root}</Loggers></Configuration>"


async def do_it(cluster: KafkaCluster) -> None:
    """What is done to the cluster: a pause, a topic that is made again, a pause, a kill, a stop in order."""
    client = Client(cluster, TOPICS)
    await client.create()
    await client.ask("create", lambda admin: admin.create_topics([AGAIN]))
    await client.wait_until_full("created")
    async with load(cluster, (("orders", 3), ("loose", 1), ("again", 1))):
        for is_first in (True, False):
            await asyncio.sleep(8)
            cluster.pause(PAUSED)
            await asyncio.sleep(PAUSE_S)
            cluster.resume(PAUSED)
            await client.wait_until_full("after the pause")
            if is_first:
                await client.delete("again")
                await asyncio.sleep(3)
                await client.ask("create", lambda admin: admin.create_topics([AGAIN]))
        await asyncio.sleep(6)
        cluster.kill(KILLED)
        await client.wait_for("fenced", lambda seen: all(KILLED not in isr for _, isr, _ in seen.values()))
        cluster.start(KILLED)
        await client.wait_until_full("after the kill")
        cluster.stop(STOPPED)
    cluster.stop(PAUSED)
    cluster.kill(KILLED)


def tool_of(jars: Path) -> list[str]:
    """The command of a release's tool; it was moved in 4.3."""
    name = "org.apache.kafka.tools" if list(jars.glob("kafka-tools-4.[3-9]*.jar")) else "kafka.tools"
    return ["java", "-cp", f"{jars}/*", f"{name}.DumpLogSegments"]


def of_nodes(jars: Path, below: Path) -> dict[str, bytes]:
    """Run the nodes; returns the files of the corpus by name."""
    options = ("-Dlog4j2.configurationFile=log4j2.xml", "-Duser.timezone=UTC", "-Dlog4j2.disableJmx=true")
    cluster = KafkaCluster(below, 3, release=Release(jars, options), settings=SETTINGS)
    cluster.format()
    for node in cluster.nodes:
        (cluster.home(node) / "log4j2.xml").write_text(configuration(has_all=node == 1))
    try:
        for node in cluster.nodes:
            cluster.start(node)
        asyncio.run(do_it(cluster))
    finally:
        cluster.end()
    files: dict[str, bytes] = {}
    for node in cluster.nodes:
        home, log = cluster.home(node), cluster.data(node) / "__cluster_metadata-0"
        printed = [*sorted(log.glob("*.log")), *sorted(log.glob("*.checkpoint"))]
        kept = [*printed, log / "quorum-state", cluster.data(node) / "meta.properties"]
        for path in (*kept, *sorted((home / "logs").rglob("*.log"))):
            files[f"node{node}/{path.relative_to(home)}"] = path.read_bytes()
        if node == 1:
            command = [*tool_of(jars), "--cluster-metadata-decoder", "--files", ",".join(map(str, printed))]
            files["node1/dump.txt"] = run(command, START_S).encode()
    # The texts say where the nodes ran, which is of no use.
    return {name: content.replace(str(below).encode(), b"/srv/kafka") for name, content in files.items()}


def of_records(jars: Path, below: Path) -> dict[str, bytes]:
    """A log and a snapshot of every record, and what the tool prints of them by its options."""
    run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(below), str(_HERE / "EveryRecord.java")], START_S)
    lines = run(["java", "-cp", f"{below}:{jars}/*", "EveryRecord"], START_S).splitlines()
    printed = [line.split() for line in lines if line.startswith(("data ", "control "))]
    data = [bytes.fromhex(value) for kind, *_, value in printed if kind == "data"]
    # The tool of 4.1 and later ends at version 1 of a change of the quorum's leader.
    is_read = {(2, 0), *(() if list(jars.glob("kafka-clients-4.[1-9]*.jar")) else [(2, 1)]), (5, 0), (6, 0)}
    numbers = [(int(number), int(version), value) for kind, number, version, value in printed if kind == "control"]
    controls = [(number, bytes.fromhex(value)) for number, version, value in numbers if (number, version) in is_read]
    header, footer = (
        (number, next(bytes.fromhex(value) for n, _, value in numbers if n == number)) for number in (3, 4)
    )
    files = {SEGMENT: segment([*controls, *data]), SNAPSHOT: segment([header, *data, footer])}
    for name, content in files.items():
        (below / name).write_bytes(content)
    for name, options in PRINTED.items():
        command = [*tool_of(jars), *options, "--files", f"{SEGMENT},{SNAPSHOT}"]
        files[f"{name}.txt"] = subprocess.run(command, cwd=below, capture_output=True, check=True).stdout
    return files


def segment(records: Sequence[bytes | tuple[int, bytes]]) -> bytes:
    """A file of these records: data, and control records with their types, each in a batch of its own."""
    return b"".join(
        batch(offset, one) if isinstance(one, bytes) else control(offset, *one) for offset, one in enumerate(records)
    )


def write(name: str, files: dict[str, bytes]) -> None:
    target = _HERE / f"{name}.tar.xz"
    with tarfile.open(target, "w:xz", preset=9) as packed:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    print(f"{target}: {len(files)} files, {target.stat().st_size:,} bytes")


def main(release: str, *more: str) -> None:
    jars = jars_with_log4j(release, FETCH_S)
    with tempfile.TemporaryDirectory() as below:
        write(f"records-{release}", of_records(jars, Path(below)))
    if "--records" not in more:
        with tempfile.TemporaryDirectory() as below:
            write(release, of_nodes(jars, Path(below)))


if __name__ == "__main__":
    main(*sys.argv[1:])
