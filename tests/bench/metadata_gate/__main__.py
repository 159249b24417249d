"""`make bench WHAT=metadata`: what a node's death costs controller, nodes and a thousand subscribers to metadata (C67).

Keeps a block for docs/BENCHMARKS.md. Bounded in quantities; some minutes, most of them for making the partitions;
loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kept import DOCS, keep, measured_commit
from metadata_gate.measured import Size, measure
from metadata_gate.page import gate_block


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    usual = Size()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    parser.add_argument("--dry", action="store_true", help="print the block and keep nothing")
    parser.add_argument("--topics", type=int, default=usual.topics)
    parser.add_argument("--partitions", type=int, default=usual.partitions, help="of each topic")
    parser.add_argument("--replicas", type=int, default=usual.replicas, help="of each partition")
    parser.add_argument("--subscribers", type=int, default=usual.subscribers)
    parser.add_argument("--busy", default="", help="a sentence on what else the machine did, for the page")
    asked = parser.parse_args(arguments)
    size = Size(
        topics=asked.topics, partitions=asked.partitions, replicas=asked.replicas, subscribers=asked.subscribers
    )
    commit = measured_commit()
    directory = Path(tempfile.mkdtemp(prefix="strandline-metadata-"))
    try:
        gate = asyncio.run(measure(directory, size))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = gate_block(gate, commit, asked.busy)
    if not asked.dry:
        keep("metadata", text, asked.docs)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
