"""`make bench WHAT=transactions`: what transactions cost beside plain records, what open ones cost others, and how long
a commit waits for a coordinator whose node was killed.

Keeps a block for docs/BENCHMARKS.md and its rounds in docs/benchmarks.json. Bounded in quantities; some
minutes; loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import results
from kept import DOCS, keep
from transaction_figures.measured import Size, measure
from transaction_figures.page import block, rows

SHORT = Size(
    rounds=2, ids=50, megabytes=8, records=10_000, singles=20, batches=50, count_rounds=2, kills=1, settle_ms=200
)
"""For trying; no figure means anything."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    # An exit, unlike the signal, stops the cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where measured.json is")
    parser.add_argument("--dry", action="store_true", help="print the block and keep nothing")
    parser.add_argument("--short", action="store_true", help="small quantities, for trying; needs --dry or --docs")
    for name in Size.__slots__:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int)
    asked = parser.parse_args(arguments)
    if asked.short and not asked.dry and asked.docs == DOCS:
        parser.error("--short needs --dry or --docs: its figures mean nothing and must not replace those in docs/")
    usual = SHORT if asked.short else Size()
    changed = {name: given for name in Size.__slots__ if (given := getattr(asked, name)) is not None}
    about = results.conditions()
    directory = Path(tempfile.mkdtemp(prefix="strandline-transactions-"))
    try:
        figures = asyncio.run(measure(directory, replace(usual, **changed)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    text = block(figures, about)
    if not asked.dry:
        keep("transactions", text, asked.docs)
        kept = results.read(asked.docs)
        results.put(kept, "transactions", about, rows(figures))
        results.write(asked.docs, kept)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
