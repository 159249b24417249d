"""Lists and reads files outside of Spark's queries: in directories of this machine, by Hadoop, or by pyarrow if a
session has no JVM.

Invariant: hidden files, whose names begin with a dot, are unfinished and never listed. Paths are passed to Spark
through `literal`, because it takes them for patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from pyspark.sql import SparkSession

from strandline_analytics.jvm import hadoop_files, hadoop_path, has_jvm, read_stream
from strandline_analytics.sources import Listed
from strandline_analytics.sources.trouble import NothingThere

_OF_PATTERNS = re.compile(r"[\[\]{}*?\\]")


def literal(uri: str) -> str:
    """A URI escaped for Spark's readers: brackets, braces, stars, question marks and backslashes make patterns."""
    return _OF_PATTERNS.sub(r"\\\g<0>", uri)


def path_here(name: str) -> Path | None:
    """The local path of a name or a ``file:`` URI; nothing in it is escaped. None if it is not on this machine."""
    if name.startswith("file:"):
        rest = name.removeprefix("file:")
        return Path("/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest)
    return None if "://" in name else Path(name)


def uri_of(name: str) -> str:
    """The URI of a place that Spark writes to; ``s3:`` becomes Hadoop's ``s3a:``."""
    path = path_here(name)
    return name.replace("s3://", "s3a://", 1) if path is None else f"file://{path.absolute()}"


class Place(Protocol):
    """A root with files below it."""

    root: str

    def files(self, folder: str = "") -> Iterator[Listed]:
        """Every file below a folder of the root; none if the folder does not exist."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        ...

    def ends(self, path: str, size_bytes: int, count: int) -> tuple[bytes, bytes]:
        """The first and the last ``count`` bytes of a file."""
        ...

    def uri(self, path: str) -> str:
        """The URI of a file for Spark."""
        ...


class LocalPlace:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        # Hadoop removes `..` from a path before it resolves links, so paths are passed without any.
        self._root = root.resolve()
        self.root = str(self._root)

    def files(self, folder: str = "") -> Iterator[Listed]:
        """Files in order of their paths."""
        for path in sorted((self._root / folder).rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                yield Listed(path.relative_to(self._root).as_posix(), path.stat().st_size)

    def read(self, path: str) -> bytes:
        """Read a file."""
        return (self._root / path).read_bytes()

    def ends(self, path: str, size_bytes: int, count: int) -> tuple[bytes, bytes]:
        """Read both ends of a file."""
        with (self._root / path).open("rb") as file:
            first = file.read(count)
            file.seek(max(0, size_bytes - count))
            return first, file.read(count)

    def uri(self, path: str) -> str:
        """An absolute file URI in Hadoop's form: nothing is escaped."""
        return f"file://{self._root / path}"


class HadoopPlace:
    """A root behind a file system of Hadoop (`hdfs:`, `s3a:` and whatever jars were added)."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/")
        self._spark = spark
        path = self._path("")
        self._fs = hadoop_files(spark, path)
        self._prefix = len(self._fs.makeQualified(path).toString().rstrip("/")) + 1

    def _path(self, path: str) -> Any:
        return hadoop_path(self._spark, f"{self.root}/{path}".rstrip("/"))

    def files(self, folder: str = "") -> Iterator[Listed]:
        """Files in order of their paths."""
        start = self._path(folder)
        if not self._fs.exists(start):
            return
        found, each = [], self._fs.listFiles(start, True)
        while each.hasNext():
            status = each.next()
            found.append(Listed(status.getPath().toString()[self._prefix :], status.getLen()))
        yield from sorted(one for one in found if not one.path.rpartition("/")[2].startswith("."))

    def read(self, path: str) -> bytes:
        """Read a file through the JVM."""
        return self._bytes(path, 0, self._fs.getFileStatus(self._path(path)).getLen())

    def ends(self, path: str, size_bytes: int, count: int) -> tuple[bytes, bytes]:
        """Read both ends of a file."""
        count = min(count, size_bytes)
        return self._bytes(path, 0, count), self._bytes(path, size_bytes - count, count)

    def _bytes(self, path: str, start: int, count: int) -> bytes:
        stream = self._fs.open(self._path(path))
        try:
            stream.seek(start)
            return read_stream(self._spark, stream, count)
        finally:
            stream.close()

    def uri(self, path: str) -> str:
        """The URI as it was given."""
        return f"{self.root}/{path}"


def bytes_here(inputs: Sequence[str]) -> int | None:
    """The total size of the files of inputs, bytes; None if an input is not a directory of this machine."""
    roots = [path_here(name) for name in inputs]
    if any(root is None or not root.is_dir() for root in roots):
        return None
    return sum(listed.size_bytes for root in roots if root is not None for listed in LocalPlace(root).files())


def open_place(spark: SparkSession, name: str) -> Place:
    """The place of a path or URI; ``s3:`` is read by Hadoop's ``s3a:``.

    Raises:
        NothingThere: it is neither a directory of this machine nor a URI.
    """
    root = path_here(name)
    if root is None and not has_jvm(spark):
        place: Place = _arrow().ArrowPlace(name)
        return place
    if root is None:
        return HadoopPlace(spark, uri_of(name))
    if not root.is_dir():
        raise NothingThere(f"{name} is not a directory; give the export_dir of services, or a URI such as s3a://...")
    return LocalPlace(root)


def write_text(spark: SparkSession, name: str, text: str) -> None:
    """Write a small text file to a path or URI, replacing one of the same name; on this machine atomically."""
    if (path := path_here(name)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
        return
    if not has_jvm(spark):
        _arrow().write(name, text.encode())
        return
    path_there = hadoop_path(spark, name)
    stream = hadoop_files(spark, path_there).create(path_there, True)
    try:
        stream.write(text.encode())
    finally:
        stream.close()


def read_text(spark: SparkSession, name: str) -> str | None:
    """A small text file at a path or URI; None if it does not exist."""
    if (path := path_here(name)) is not None:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    if not has_jvm(spark):
        content = _arrow().read(name)
        return None if content is None else content.decode()
    path_there = hadoop_path(spark, name)
    files = hadoop_files(spark, path_there)
    if not files.exists(path_there):
        return None
    stream = files.open(path_there)
    try:
        return read_stream(spark, stream).decode()
    finally:
        stream.close()


def _arrow() -> ModuleType:
    # Imported only here: loading it takes longer than listing the files of a small export.
    from strandline_analytics.sources import arrow_files

    return arrow_files
