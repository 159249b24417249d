"""The controller's state in one SQLite file: WAL, synchronous FULL, one writer thread.

Invariant: a transaction is one SQLite transaction, fsynced before `commit` returns; the file belongs to one process at
a time, and only commits raise its metadata offset.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import structlog

from strandline.core.control import state as control_state
from strandline.core.messages import PartitionImage
from strandline.core.permissions import Rule
from strandline.core.quotas import Quota
from strandline.metadata import documents
from strandline.metadata.documents import whole
from strandline.metadata.store import Mark, StoreFailed, StoreInUse, StoreMarked, mark_value, read_mark

FILE_NAME = "metadata.sqlite"
SCHEMA_VERSION = 4
"""The third added access rules, which an earlier release would ignore and so allow everything (C105); the fourth added
clients' quotas, which an earlier release would not enforce (C102)."""
_FIRST_SCHEMA = 1
_MARKED_SCHEMA = 1_000 + SCHEMA_VERSION
"""The version of a store that must not serve; earlier releases do not know it, so they refuse the store too."""
_READABLE = (_FIRST_SCHEMA, 2, 1_002, 3, 1_003, SCHEMA_VERSION, _MARKED_SCHEMA)

_SCHEMA = """
CREATE TABLE header (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), document TEXT NOT NULL) STRICT;
CREATE TABLE nodes (node_id INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT;
CREATE TABLE topics (position INTEGER PRIMARY KEY, topic_id TEXT NOT NULL UNIQUE, document TEXT NOT NULL) STRICT;
CREATE TABLE partitions (
    topic_id TEXT NOT NULL, partition INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (topic_id, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE deleted_topics (topic_id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
"""

_LATER_TABLES = (
    "CREATE TABLE IF NOT EXISTS removed_nodes (node_id INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS reigns "
    "(position INTEGER PRIMARY KEY, reign_id TEXT NOT NULL UNIQUE, document TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS acls (document TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS quotas (document TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS mark "
    "(only_row INTEGER PRIMARY KEY CHECK (only_row = 1), document TEXT NOT NULL) STRICT",
)
"""Tables added after the first release, which ignores them, so that they needed no new schema version."""
_TABLES = ("header", "nodes", "removed_nodes", "topics", "partitions", "deleted_topics", "reigns", "acls", "quotas")

_LOOK_S = 0.5
"""Seconds between two checks whether a closed store has been replaced."""

_Written = tuple[int, int, int] | None

_log = structlog.get_logger("strandline.metadata")

_Result = TypeVar("_Result")
_Document = TypeVar("_Document", bound=documents.Stored)


class SqliteStore:
    """The embedded store. All access to the file is in one thread of its own."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self.mark: Mark | None = None
        """Why the open store must not serve; None if it may."""

    async def open(self) -> control_state.ClusterState | None:
        """See `MetadataStore.open`.

        Raises:
            StoreMarked: the store is half migrated, or was moved.
        """
        state = await self.open_marked()
        if self.mark is not None:
            await self.close()
            raise StoreMarked(self.mark.sentence(self.place))
        return state

    async def open_marked(self) -> control_state.ClusterState | None:
        """Open the store for a migration, even if it must not serve; raises as `MetadataStore.open`."""
        return await self._run(self._open)

    async def read(self) -> control_state.ClusterState | None:
        """Read the state from the open store's file. Raises `StoreFailed`."""
        return await self._run(lambda: self._read(None))

    async def set_mark(self, mark: Mark | None) -> None:
        """Mark the open store so that it must not serve, or remove the mark with None.

        Raises:
            StoreFailed: the outcome is unknown.
        """
        await self._run(lambda: self._set_mark(mark))

    @property
    def place(self) -> str:
        """The store's name in the form of `controller migrate`."""
        return f"sqlite:{self._path.parent.absolute()}"

    async def commit(self, transactions: Sequence[control_state.Transaction]) -> None:
        """See `MetadataStore.commit`."""
        await self._run(lambda: self._commit(transactions))

    async def replace(self, state: control_state.ClusterState) -> None:
        """See `MetadataStore.replace`."""
        await self._run(lambda: self._replace(state))

    async def copy_to(self, path: Path) -> None:
        """See `MetadataStore.copy_to`."""
        await self._run(lambda: self._copy_to(path))

    async def reopened(self) -> control_state.ClusterState | None:
        """See `MetadataStore.reopened`."""
        await self.close()
        known = self._written()
        while True:
            known = await self._another_than(known)
            try:
                return await self.open()
            except StoreInUse:
                # The replacing process has not closed the file yet, but may have written its last byte: check it again.
                known = None
            except StoreFailed as error:
                await self.close()
                _log.warning("store cannot be used yet", reason=str(error))

    async def _another_than(self, known: _Written) -> _Written:
        """Wait until the file differs from ``known`` and is no longer being written."""
        last = known
        while True:
            await asyncio.sleep(_LOOK_S)
            now = self._written()
            if now is not None and now == last != known:
                return now
            last = now

    def _written(self) -> _Written:
        """A value that changes whenever the file is written or replaced; None while there is no file."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return (found.st_ino, found.st_mtime_ns, found.st_size)

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        if self._thread is not None:
            await self._run(self._close)
            self._thread.shutdown(wait=True)
            self._thread = None

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            # Shielded, so that a cancelled caller does not leave the outcome of a commit unknown to the next one.
            return await asyncio.shield(future)
        except (sqlite3.Error, OSError, OverflowError, documents.DamagedDocument) as error:
            raise StoreFailed(f"metadata store {self._path}: {error}") from error

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._connection is not None, "the store is not open"
        return self._connection

    def _open(self) -> control_state.ClusterState | None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._refuse_emptied()
        self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        # Exclusive: a second controller on this file would hand out the same epochs.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._close()
            # The lowest byte is the kind, the others are details of it.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise StoreInUse(f"metadata store {self._path} is in use by another process ({error})") from error
        try:
            return self._read_or_create()
        except BaseException:
            self._db.execute("ROLLBACK")
            self._close()
            raise

    def _refuse_emptied(self) -> None:
        """Refuse a missing or empty file with a log: SQLite would discard the log and start with no cluster (A6)."""
        log = self._path.with_name(f"{self._path.name}-wal")
        if _size_bytes(log) > 0 and _size_bytes(self._path) == 0:
            raise StoreFailed(f"metadata store {self._path} is empty, but {log.name} is not; restore it or recover")

    def _read_or_create(self) -> control_state.ClusterState | None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version not in _READABLE:
            raise StoreFailed(f"metadata store {self._path} has schema {version}; this release reads {SCHEMA_VERSION}")
        for statement in _LATER_TABLES:
            self._db.execute(statement)
        self._check_integrity()
        self.mark = self._read_mark()
        state = self._read(documents.turned if version == _FIRST_SCHEMA else None)
        if version == _FIRST_SCHEMA and state is not None:
            self._write_whole(state)
        if version != SCHEMA_VERSION:
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION if self.mark is None else _MARKED_SCHEMA}")
        self._db.execute("COMMIT")
        return state

    def _check_integrity(self) -> None:
        (verdict,) = self._db.execute("PRAGMA quick_check").fetchone()
        if verdict != "ok":
            raise StoreFailed(f"metadata store {self._path} is damaged ({verdict}); restore it or recover")

    def _read(self, present: documents.Present | None) -> control_state.ClusterState | None:
        row = self._db.execute("SELECT document FROM header").fetchone()
        if row is None:
            return None

        def every(kind: type[_Document], table: str, order: str) -> tuple[_Document, ...]:
            rows = self._db.execute(f"SELECT document FROM {table} ORDER BY {order}")
            return tuple(documents.read(text, kind, present) for (text,) in rows)

        everything = control_state.Transaction(
            header=documents.read(row[0], control_state.ClusterHeader, present),
            removed_nodes=every(control_state.RemovedNode, "removed_nodes", "node_id"),
            nodes=every(control_state.NodeRecord, "nodes", "node_id"),
            topics=every(control_state.TopicRecord, "topics", "position"),
            partitions=every(PartitionImage, "partitions", "topic_id, partition"),
            reigns=every(control_state.ReignRecord, "reigns", "position"),
            acls=every(Rule, "acls", "document"),
            quotas=every(Quota, "quotas", "document"),
        )
        gone = (row[0] for row in self._db.execute("SELECT topic_id FROM deleted_topics"))
        empty = control_state.ClusterState(header=everything.header, deleted_topic_ids=frozenset(gone))
        return empty.apply(everything)

    def _read_mark(self) -> Mark | None:
        row = self._db.execute("SELECT document FROM mark").fetchone()
        return None if row is None else read_mark(row[0])

    def _set_mark(self, mark: Mark | None) -> None:
        with self._whole_transaction():
            self._db.execute("DELETE FROM mark")
            if mark is not None:
                self._db.execute("INSERT INTO mark VALUES (1, ?)", (mark_value(mark),))
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION if mark is None else _MARKED_SCHEMA}")
        self.mark = mark

    @contextmanager
    def _whole_transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _commit(self, transactions: Sequence[control_state.Transaction]) -> None:
        with self._whole_transaction():
            for transaction in transactions:
                self._write(transaction)

    def _write(self, transaction: control_state.Transaction) -> None:
        db = self._db
        header = documents.write(transaction.header)
        db.execute("INSERT INTO header VALUES (1, ?) ON CONFLICT DO UPDATE SET document = excluded.document", (header,))
        for removed in transaction.removed_nodes:
            db.execute("DELETE FROM nodes WHERE node_id = ?", (removed.node_id,))
            row = (removed.node_id, documents.write(removed))
            db.execute("INSERT OR REPLACE INTO removed_nodes VALUES (?, ?)", row)
        for node in transaction.nodes:
            row = (node.image.node_id, documents.write(node))
            db.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?)", row)
        for topic in transaction.topics:
            self._write_topic(topic)
        for partition in transaction.partitions:
            key = (partition.tp.topic_id, partition.tp.partition)
            document = documents.write(partition)
            db.execute("INSERT OR REPLACE INTO partitions VALUES (?, ?, ?)", (*key, document))
        self._write_reigns(transaction.reigns)
        self._write_rows("acls", transaction.removed_acls, transaction.acls)
        self._write_rows("quotas", transaction.removed_quotas, transaction.quotas)
        for topic_id in transaction.deleted_topic_ids:
            db.execute("DELETE FROM topics WHERE topic_id = ?", (topic_id,))
            db.execute("DELETE FROM partitions WHERE topic_id = ?", (topic_id,))
            db.execute("INSERT OR IGNORE INTO deleted_topics VALUES (?)", (topic_id,))

    def _write_rows(self, table: str, removed: Iterable[Rule | Quota], added: Iterable[Rule | Quota]) -> None:
        for row in removed:
            self._db.execute(f"DELETE FROM {table} WHERE document = ?", (documents.write(row),))
        for row in added:
            self._db.execute(f"INSERT OR IGNORE INTO {table} VALUES (?)", (documents.write(row),))

    def _write_reigns(self, reigns: tuple[control_state.ReignRecord, ...]) -> None:
        for reign in reigns:
            self._db.execute(
                "INSERT INTO reigns (reign_id, document) VALUES (?, ?) "
                "ON CONFLICT (reign_id) DO UPDATE SET document = excluded.document",
                (reign.reign_id, documents.write(reign)),
            )
        if reigns:
            newest_forgotten = "SELECT position FROM reigns ORDER BY position DESC LIMIT 1 OFFSET ?"
            self._db.execute(f"DELETE FROM reigns WHERE position <= ({newest_forgotten})", (control_state.KEPT_REIGNS,))

    def _write_topic(self, topic: control_state.TopicRecord) -> None:
        row = (topic.topic_id, documents.write(topic))
        # An update keeps the position: topics stay in the order of their creation.
        self._db.execute(
            "INSERT INTO topics (topic_id, document) VALUES (?, ?) "
            "ON CONFLICT (topic_id) DO UPDATE SET document = excluded.document",
            row,
        )

    def _replace(self, state: control_state.ClusterState) -> None:
        with self._whole_transaction():
            self._write_whole(state)

    def _write_whole(self, state: control_state.ClusterState) -> None:
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table}")
        self._write(whole(state))

    def _copy_to(self, path: Path) -> None:
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)
        target = sqlite3.connect(fresh)
        try:
            self._db.backup(target)
            # So that the copy is one file, without a log next to it.
            target.execute("PRAGMA journal_mode = DELETE")
        finally:
            target.close()
        sync(fresh)
        fresh.replace(path)
        sync(path.parent)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def sync(path: Path) -> None:
    """Make a file's content, or a directory's entries, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
