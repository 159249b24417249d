"""How a file comes to its place whole: a directory of this machine, or any filesystem that Arrow reaches.

A destination is named by a path or by a URI. ``s3://bucket/prefix?endpoint_override=host:port&scheme=http`` goes to
an S3-compatible store with credentials from the environment, other schemes to `pyarrow.fs`, and what Arrow does not
know to the fsspec implementation of that name; ``fsspec+NAME://...`` asks for that one by name.

Invariant: a reader never sees half a file under its own name. Directories rename a file that begins with a dot;
object stores put an object at once. Every failure is an `OSError`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 5.0
"""A store that does not answer holds only the writer thread, and for no longer than a few of these."""
_ATTEMPTS = 2
_ARROW_SCHEMES = frozenset({"gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "hf"})
_OBJECT_STORES = frozenset({"s3", "s3a", "gcs", "gs", "abfs", "az", "memory"})
"""Where an object appears at once; elsewhere a file is written beside its place and moved."""


class Destination(Protocol):
    """Where files lie. Paths are relative, with ``/``. All methods raise OSError when it fails."""

    def put(self, path: str, content: bytes) -> None:
        """Place a file whole, replacing one of the same name."""
        ...

    def get(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; one that does not exist is removed already."""
        ...

    def names(self, folder: str) -> Iterator[str]:
        """The paths of all files below a folder, sorted; none if there is no such folder."""
        ...


class LocalDirectory:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, path: str, content: bytes) -> None:
        """Write beside it, make it durable, rename."""
        place = self._root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_name(f".{place.name}.new")
        try:
            with fresh.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(place)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def get(self, path: str) -> bytes:
        """Read a file."""
        return (self._root / path).read_bytes()

    def delete(self, path: str) -> None:
        """Unlink a file."""
        (self._root / path).unlink(missing_ok=True)

    def names(self, folder: str) -> Iterator[str]:
        """All files but hidden ones, which are unfinished."""
        start = self._root / folder
        paths = (path for path in start.rglob("*") if path.is_file() and not path.name.startswith("."))
        yield from sorted(path.relative_to(self._root).as_posix() for path in paths)

    def __str__(self) -> str:
        return str(self._root)


class ArrowFileSystem:
    """A filesystem of pyarrow, or one of fsspec behind it."""

    def __init__(self, filesystem: Any, root: str, name: str) -> None:
        self._filesystem = filesystem
        self._root = root.strip("/") if not root.startswith("/") else root.rstrip("/")
        self._name = name

    def put(self, path: str, content: bytes) -> None:
        """Put an object, which object stores do at once; elsewhere write beside it and move."""
        place = self._place(path)
        with _failures_as_os_errors():
            if self._is_object_store:
                self._write(place, content)
                return
            folder, _, name = place.rpartition("/")
            self._filesystem.create_dir(folder, recursive=True)
            fresh = f"{folder}/.{name}.new"
            self._write(fresh, content)
            self._filesystem.move(fresh, place)

    def _write(self, place: str, content: bytes) -> None:
        with self._filesystem.open_output_stream(place) as stream:
            stream.write(content)

    @property
    def _is_object_store(self) -> bool:
        # An fsspec filesystem of several protocols has all of them in its name.
        return not _OBJECT_STORES.isdisjoint(re.findall(r"\w+", self._filesystem.type_name))

    def get(self, path: str) -> bytes:
        """Read an object."""
        with _failures_as_os_errors(), self._filesystem.open_input_stream(self._place(path)) as stream:
            content: bytes = stream.read()
            return content

    def delete(self, path: str) -> None:
        """Delete an object."""
        try:
            with _failures_as_os_errors():
                self._filesystem.delete_file(self._place(path))
        except FileNotFoundError:
            return

    def names(self, folder: str) -> Iterator[str]:
        """All objects below a folder but hidden ones."""
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._place(folder), recursive=True, allow_not_found=True)
        with _failures_as_os_errors():
            found = [info.path for info in self._filesystem.get_file_info(selector) if info.type == FileType.File]
        prefix = len(self._root) + 1 if self._root else 0
        yield from sorted(path[prefix:] for path in found if not path.rpartition("/")[2].startswith("."))

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/") if self._root else path

    def __str__(self) -> str:
        return self._name


@contextmanager
def _failures_as_os_errors() -> Iterator[None]:
    """Other filesystems raise errors of any type; the exporter has to handle only one."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def open_destination(name: str) -> Destination:
    """The destination that a path or URI names. Nothing is written yet.

    Raises:
        ValueError: the URI is of no known kind, or pyarrow is missing for it.
        OSError: the filesystem refuses.
    """
    if "://" not in name:
        return LocalDirectory(Path(name))
    if name.startswith("file://"):
        return LocalDirectory(Path(urlsplit(name).path))
    try:
        from pyarrow import ArrowInvalid, fs as arrow_fs
    except ImportError as error:
        raise ValueError(f"{name} needs pyarrow; in the checkout: pip install '.[export]'") from error
    if name.startswith("s3://"):
        return _s3(name, arrow_fs)
    try:
        filesystem, root = arrow_fs.FileSystem.from_uri(name if _arrow_knows(name) else f"fsspec+{name}")
    except (ArrowInvalid, ImportError, ValueError) as error:
        raise ValueError(f"{name} is not a destination: {error}") from error
    return ArrowFileSystem(filesystem, root, name)


def _arrow_knows(name: str) -> bool:
    scheme = name.partition("://")[0]
    return scheme in _ARROW_SCHEMES or scheme.startswith("fsspec+") or find_spec("fsspec") is None


def _s3(uri: str, arrow_fs: Any) -> ArrowFileSystem:
    """S3 with short time-outs: the defaults of the SDK wait for minutes on a store that is gone."""
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    known = {"endpoint_override", "scheme", "region", "anonymous", "force_virtual_addressing"}
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"{uri}: {unknown} are not options; known are {sorted(known)}")
    flags = {name: options.pop(name) == "true" for name in ("anonymous", "force_virtual_addressing") if name in options}
    filesystem = arrow_fs.S3FileSystem(
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        retry_strategy=arrow_fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        region=options.pop("region", os.environ.get("AWS_REGION", "us-east-1")),
        background_writes=False,
        **options,
        **flags,
    )
    return ArrowFileSystem(filesystem, f"{parts.netloc}{parts.path}", uri.partition("?")[0])
