"""Reads and moves files behind a URI by pyarrow in this process, for sessions without a JVM (Spark Connect).

Credentials and endpoint of an object store come from this process (``AWS_...``) and from the URI's query, as in the
export (``s3://bucket/state?endpoint_override=...``); Spark's own are set at its server.

Invariant: as elsewhere, hidden files are never listed, and an object appears whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.fs as arrow_fs

from strandline_analytics.sources import Listed


def _opened(name: str) -> tuple[Any, str]:
    """The file system of a URI, and the path in it."""
    system, path = arrow_fs.FileSystem.from_uri(name.replace("s3a://", "s3://", 1))
    return system, path.rstrip("/")


class ArrowPlace:
    """A root behind a file system of pyarrow."""

    def __init__(self, root: str) -> None:
        self.root = root.partition("?")[0].rstrip("/")
        self._system, self._path = _opened(root)

    def files(self, folder: str = "") -> Iterator[Listed]:
        """The files in order of their paths."""
        below = arrow_fs.FileSelector(f"{self._path}/{folder}".rstrip("/"), allow_not_found=True, recursive=True)
        for info in sorted(self._system.get_file_info(below), key=lambda info: info.path):
            if info.type == arrow_fs.FileType.File and not info.base_name.startswith("."):
                yield Listed(info.path[len(self._path) + 1 :], info.size)

    def read(self, path: str) -> bytes:
        """Read a file."""
        with self._system.open_input_stream(f"{self._path}/{path}") as stream:
            return bytes(stream.read())

    def ends(self, path: str, size_bytes: int, count: int) -> tuple[bytes, bytes]:
        """Read both ends of a file."""
        count = min(count, size_bytes)
        with self._system.open_input_file(f"{self._path}/{path}") as file:
            return bytes(file.read_at(count, 0)), bytes(file.read_at(count, size_bytes - count))

    def uri(self, path: str) -> str:
        """The URI for Spark, without the query."""
        return f"{self.root}/{path}"


class ArrowMover:
    """Moves files behind URIs."""

    def replace(self, fresh: str, place: str) -> None:
        """Move the only data file of a folder over a place; without one, what is at the place is removed."""
        found = [file for file in ArrowPlace(fresh).files() if file.path.rpartition("/")[2].startswith("part-")]
        system, target = _opened(place)
        if not found:
            if self.exists(place):
                system.delete_file(target)
            return
        (only,) = found
        system.create_dir(target.rpartition("/")[0])
        system.move(f"{_opened(fresh)[1]}/{only.path}", target)

    def remove(self, folder: str) -> None:
        """Remove a folder with everything in it."""
        system, path = _opened(folder)
        system.delete_dir_contents(path, missing_dir_ok=True)
        if system.get_file_info(path).type == arrow_fs.FileType.Directory:
            system.delete_dir(path)

    def exists(self, name: str) -> bool:
        """Whether a file exists."""
        system, path = _opened(name)
        return bool(system.get_file_info(path).type == arrow_fs.FileType.File)


def write(name: str, content: bytes) -> None:
    """Write a small file, replacing one of the same name."""
    system, path = _opened(name)
    system.create_dir(path.rpartition("/")[0])
    with system.open_output_stream(path) as stream:
        stream.write(content)


def read(name: str) -> bytes | None:
    """A small file; None if it does not exist."""
    system, path = _opened(name)
    if system.get_file_info(path).type != arrow_fs.FileType.File:
        return None
    with system.open_input_stream(path) as stream:
        return bytes(stream.read())
