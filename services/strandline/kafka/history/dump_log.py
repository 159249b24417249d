"""The text that `kafka-dump-log --cluster-metadata-decoder` prints of a metadata log, as batches of records.

For those who have the text and not the files. It carries no bytes, so nothing of it is checked by a CRC, and it names
no node, so that it proves nothing: what is committed of it is not known, but for a quorum of one voter.

Invariant: a line becomes records as the file would have become, or an `Unreadable` with file and line; memory is that
of one batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.core.types import BatchHeader, LeaderEpoch, Offset
from strandline.kafka.history.log_files import Copy, FoundBatch
from strandline.kafka.history.record_table import CONTROL_RECORDS, RECORDS, RecordKind
from strandline.kafka.history.records import MetadataRecord, check_moment
from strandline.kafka.history.wire import Message, Unreadable, layout_of, uuid_text
from strandline.records.batch import CONTROL_BIT, MAGIC

MOST_LINE_CHARACTERS = 16 << 20

_BATCH = re.compile(
    r"baseOffset: (\d{1,19}) lastOffset: (\d{1,19}) count: (\d{1,9}) .*partitionLeaderEpoch: (\d{1,9}) .*"
    r"isControl: (true|false) .*CreateTime: (\d{1,15}) size: (\d{1,9}) .*isvalid: (true|false)"
)
_RECORD = re.compile(r"\| offset: (\d{1,19}) CreateTime: (-?\d{1,15}) .*?(?:payload|(\w+)): (\{.*\})")
_OF_UUIDS = frozenset({"topic_id", "incarnation_id", "directories", "log_dirs", "cordoned_log_dirs"})
_BY_NAME = {kind.name.lower(): (number, kind) for number, kind in RECORDS.items()}
_CONTROL_BY_NAME = {kind.name.lower(): (number, kind) for number, kind in CONTROL_RECORDS.items()}
_RENAMED = {"id": "broker_id", "epoch": "broker_epoch"}
"""Two kinds of records name these fields otherwise than the others."""


@dataclass(slots=True)
class DumpedCopy(Copy):
    """A copy of which there is the printed text alone."""

    def batches(self) -> Iterator[FoundBatch]:
        """Every batch, in order of offsets.

        Raises:
            Unreadable: a line is none of the tool's, or offsets are missing between two batches.
        """
        expected: int | None = None
        for path in self.segments:
            for batch in _batches(path):
                if expected is not None and batch.offset != expected:
                    raise Unreadable(f"{path}: the batch at offset {batch.offset} must be at {expected}")
                expected = batch.header.next_offset
                yield batch


def open_dump(paths: list[Path]) -> DumpedCopy:
    """What was printed of one node's log, the text of each segment in a file."""
    return DumpedCopy(directory=paths[0], segments=paths, snapshots=[])


def _batches(path: Path) -> Iterator[FoundBatch]:
    header: BatchHeader | None = None
    text: list[str] = []
    records: list[MetadataRecord] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if len(line) > MOST_LINE_CHARACTERS:
                raise Unreadable(f"{path}: line {number} is too long")
            if found := _BATCH.match(line):
                if header is not None:
                    yield _whole(path, header, text, records)
                header, text, records = _header(path, number, found), [], []
            elif line.startswith("|"):
                if header is None:
                    raise Unreadable(f"{path}: line {number} is a record in front of its batch")
                text.append(line)
                records.append(_record(path, number, line, header))
    if header is not None:
        yield _whole(path, header, text, records)


def _header(path: Path, number: int, found: re.Match[str]) -> BatchHeader:
    base, last, count, epoch, is_control, at_ms, size, is_valid = found.groups()
    if is_valid != "true":
        raise Unreadable(f"{path}: line {number}: Kafka's tool says that the batch at offset {base} is not valid")
    if int(last) - int(base) + 1 != int(count):
        raise Unreadable(f"{path}: line {number}: the counts of the batch at offset {base} do not agree")
    return BatchHeader(
        Offset(int(base)),
        LeaderEpoch(int(epoch)),
        int(count),
        int(size),
        int(at_ms),
        None,
        CONTROL_BIT if is_control == "true" else 0,
        int(count) - 1,
        int(at_ms),
        0,
        MAGIC,
    )


def _whole(path: Path, header: BatchHeader, text: list[str], records: list[MetadataRecord]) -> FoundBatch:
    if len(records) != header.record_count:
        raise Unreadable(
            f"{path}: the batch at offset {header.base_offset} has {len(records)} records of {header.record_count}; "
            "the text was cut off, or printed without the decoder"
        )
    return FoundBatch(header, "".join(text).encode(), path, tuple(records))


def _record(path: Path, number: int, line: str, header: BatchHeader) -> MetadataRecord:
    found = _RECORD.match(line)
    if found is None:
        raise Unreadable(f"{path}: line {number} is no record; print it with --cluster-metadata-decoder")
    offset, at_ms, control, payload = found.groups()
    try:
        check_moment(int(at_ms))
        said = json.loads(payload)
        known = _named(said, control)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Unreadable) as error:
        raise Unreadable(f"{path}: line {number}, offset {offset}: {error}") from error
    return MetadataRecord(int(offset), int(at_ms), header.stamped_epoch, *known)


def _named(said: dict[str, Any], control: str | None) -> tuple[str | None, Message, int, int]:
    if control is not None:
        number, kind = _CONTROL_BY_NAME.get(control.lower(), (-1, None))
        return (*_fields(kind, said, int(said.get("version", 0))), number, int(said.get("version", 0)))
    name = str(said["type"]).removesuffix("_RECORD").replace("_", "").lower()
    number, kind = _BY_NAME.get(name, (-1, None))
    version = int(said["version"])
    return (*_fields(kind, said["data"], version), number, version)


def _fields(kind: RecordKind | None, data: dict[str, Any], version: int) -> tuple[str | None, Message]:
    if kind is None or not 0 <= version <= kind.newest:
        return None, {}
    if kind.fields is None:
        return kind.name, {}
    layout = layout_of(kind.fields, version)
    names = {field.name for field in kind.fields}
    message = dict(layout.defaults)
    for key, value in data.items():
        name = _our_name(key)
        name = name if name in names else _RENAMED.get(name, name)
        if name in names:
            message[name] = _uuids(value) if name in _OF_UUIDS else _plain(value)
    missing = [name for name, _ in layout.plain if name not in message]
    if missing:
        raise Unreadable(f"{kind.name} version {version} lacks {', '.join(missing)}")
    return kind.name, message


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {_our_name(key): _plain(each) for key, each in value.items()}
    return value


def _our_name(key: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", key).lower()


def _uuids(value: Any) -> Any:
    """Kafka prints a UUID as 22 characters of base64; here it is hex."""
    if isinstance(value, list):
        return tuple(map(_uuids, value))
    return value if value is None else uuid_text(value)
