"""The corpus: what nodes and tools of six releases of Kafka left behind; `corpus/generate.py` makes it."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
RELEASES = ("3.3.2", "3.6.2", "3.9.1", "4.0.0", "4.1.1", "4.3.1")
NAMES_CONTROLLERS = ("4.1.1", "4.3.1")
"""Releases whose tool prints which controller was elected."""


@cache
def files_of(archive: str) -> dict[str, bytes]:
    """The files of an archive by name: a release, or ``records-`` and a release."""
    with tarfile.open(CORPUS / f"{archive}.tar.xz") as packed:
        return {one.name: found.read() for one in packed if (found := packed.extractfile(one)) is not None}


def unpack(archive: str, below: Path) -> Path:
    """Write the files of an archive below a directory; returns the directory."""
    for name, content in files_of(archive).items():
        (below / name).parent.mkdir(parents=True, exist_ok=True)
        (below / name).write_bytes(content)
    return below
