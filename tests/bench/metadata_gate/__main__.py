"""`make bench WHAT=metadata`: what a node's death costs controller, nodes and a thousand subscribers to metadata (C67).

Writes a block into docs/BENCHMARKS.md. Bounded in quantities; some minutes, most of them for making the partitions;
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

from metadata_gate.measured import Size, measure
from metadata_gate.page import gate_block
from page_blocks import measured_commit, write_block

PAGE = Path(__file__).resolve().parents[3] / "docs" / "BENCHMARKS.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    usual = Size()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="where the block goes")
    parser.add_argument("--dry", action="store_true", help="print the block and leave the page as it is")
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
        write_block(asked.page, "metadata", "make bench WHAT=metadata", text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
