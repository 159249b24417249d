"""What the demo writes: the lines of one file, or by default those of Python's standard library.

Invariant: the same machine gives the same lines in the same order every time, so that line number, partition
and content of every record can be worked out again from the file alone.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed

MAX_LINE_BYTES = 1_000_000
"""A record must fit into one batch of 1,048,588 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A text file as the demo sees it. Line i (from 0) goes to partition i mod ``partitions``."""

    path: Path
    title: str
    lines: int
    size_bytes: int
    sha256: str
    partitions: int

    def partition_of(self, line_number: int) -> int:
        """The partition that a line belongs to."""
        return line_number % self.partitions

    def lines_of(self, partition: int) -> int:
        """How many lines a partition gets."""
        return len(range(partition, self.lines, self.partitions))

    def read(self) -> Iterator[bytes]:
        """The lines in order, each with its line feed."""
        with self.path.open("rb") as source:
            yield from source


def open_corpus(path: Path, partitions: int, title: str | None = None) -> Corpus:
    """Reads ``path`` once, to count and to hash it.

    Raises:
        CommandFailed: when the file has no line, or one that no batch can hold.
    """
    digest, lines, size_bytes = hashlib.sha256(), 0, 0
    with path.open("rb") as source:
        for line in source:
            if len(line) > MAX_LINE_BYTES:
                raise CommandFailed(
                    f"{path}: line {lines + 1} has {len(line):,} bytes; a record holds at most {MAX_LINE_BYTES:,}",
                    EXIT_UNREACHABLE,
                )
            digest.update(line)
            lines += 1
            size_bytes += len(line)
    if lines == 0:
        raise CommandFailed(f"{path}: the file is empty; give one with at least one line", EXIT_UNREACHABLE)
    return Corpus(
        path=path,
        title=title or path.name,
        lines=lines,
        size_bytes=size_bytes,
        sha256=digest.hexdigest(),
        partitions=partitions,
    )


def write_standard_library(target: Path) -> None:
    """Joins all sources of the standard library into ``target``, in order of their paths."""
    root = Path(sysconfig.get_path("stdlib"))
    with target.open("wb") as joined:
        for source in library_sources(root):
            text = source.read_bytes()
            joined.write(text if text.endswith(b"\n") or not text else text + b"\n")


def library_sources(root: Path) -> list[Path]:
    """The .py files below ``root``, without what was installed later."""
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts and path.is_file())
