"""Reads the text that `kafka-dump-log --cluster-metadata-decoder` prints of a metadata log, as batches of records.

For those who have the text and not the files. It has no bytes, so its CRCs cannot be checked, and it names no node, so
that it proves nothing: what is committed is unknown, except with a quorum of one voter. The output of every release
since 3.3 is read; before 4.1 the tool prints that a controller was elected, but not which one.

Invariant: a line becomes the same records as the file, or an `Unreadable` with file and line; memory is bounded by
one batch. A line that the tool did not print is counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from strandline.core.types import BatchHeader, LeaderEpoch, Offset
from strandline.records.batch import CONTROL_BIT, MAGIC
from strandline_kafka.brokers.text_files import LeftOut, lines_of
from strandline_kafka.metadata.log_files import Copy, FoundBatch, SnapshotFile, in_order
from strandline_kafka.metadata.record_table import CONTROL_RECORDS, RECORDS, RecordKind
from strandline_kafka.metadata.records import MetadataRecord, check_moment, is_known
from strandline_kafka.metadata.wire import Message, Unreadable, layout_of, uuid_text

# ---- dump_records
# Reads the rest of a line of `kafka-dump-log --cluster-metadata-decoder` after a record's offset and sizes.
#
# Invariant: the result is the same as that of the record's bytes.

_BASE64 = frozenset(
    {"topic_id", "incarnation_id", "directories", "log_dirs", "cordoned_log_dirs", "voter_directory_id"}
)
_BY_NAME = {kind.name.lower(): number for number, kind in RECORDS.items()}
_CONTROL_BY_NAME = {kind.name.lower(): number for number, kind in CONTROL_RECORDS.items()}
_RENAMED = {"id": "broker_id", "epoch": "broker_epoch"}
"""Fields that two kinds of records name differently from the others."""

Content = tuple[str | None, Message, int, int]
"""Kind, fields, number, version."""


def content_of(text: str) -> Content | None:
    """The content of a record; None for a line that the tool never prints for a metadata log.

    Raises:
        Unreadable: the record has an unsupported version, or the tool could not read it.
        ValueError, TypeError, KeyError, AttributeError, RecursionError: it is not JSON of a record.
    """
    for expression, read in _CONTENTS:
        if found := expression.fullmatch(text):
            return read(found)
    return None


def _data(found: re.Match[str]) -> Content:
    said = json.loads(found["json"])
    name, version = str(said["type"]).removesuffix("_RECORD").replace("_", "").lower(), int(said["version"])
    number = _BY_NAME.get(name, -1)
    return (*_fields(RECORDS.get(number), said["data"], version), number, version)


def _control(found: re.Match[str]) -> Content:
    said = json.loads(found["json"])
    number, version = _CONTROL_BY_NAME.get(found["name"].lower(), -1), int(said.get("version", 0))
    return (*_fields(CONTROL_RECORDS.get(number), said, version), number, version)


def _nameless(found: re.Match[str]) -> Content:
    number = int(found["number"])
    kind = CONTROL_RECORDS.get(number)
    return None if kind is None else kind.name, {}, number, 0


def _failed(found: re.Match[str]) -> Content:
    raise Unreadable(
        f"Kafka's tool could not read the record ({found['why'].strip()}); print the log with the tool of the release "
        "that wrote it"
    )


_CONTENTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Content]], ...] = (
    (re.compile(r"payload: (?P<json>\{.*\})", re.DOTALL), _data),
    (re.compile(r"(?P<name>\w+):? (?P<json>\{.*\})"), _control),
    (re.compile(r"controlType: \w+\((?P<number>-?\d{1,5})\)"), _nameless),
    (re.compile(r"payload: Error at (?:offset )?\d+, skipping\.(?P<why>.*)"), _failed),
)
"""What follows the offset and the sizes of a record, by the releases: `LeaderChange: {}` since 4.1,
`SnapshotHeader {}` always, `controlType:` for the kinds that a release does not print."""


def _fields(kind: RecordKind | None, data: dict[str, Any], version: int) -> tuple[str | None, Message]:
    if kind is None or not is_known(kind, version):
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
            message[name] = _ours(name, value)
    missing = [name for name, _ in layout.plain if name not in message]
    if missing:
        raise Unreadable(f"{kind.name} version {version} lacks {', '.join(missing)}")
    return kind.name, message


def _ours(name: str, value: Any) -> Any:
    """A value with our names; a UUID, which Kafka prints as 22 characters of base64, becomes hex."""
    if isinstance(value, list):
        return tuple(_ours(name, each) for each in value)
    if isinstance(value, dict):
        return {(own := _our_name(key)): _ours(own, each) for key, each in value.items()}
    return uuid_text(value) if name in _BASE64 and value is not None else value


def _our_name(key: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", key).lower()


MOST_LINE_CHARACTERS = 16 << 20

_BATCH = re.compile(
    r"baseOffset: (\d{1,19}) lastOffset: (\d{1,19}) count: (\d{1,9}) .*partitionLeaderEpoch: (\d{1,9}) .*"
    r"isControl: (true|false) .*\w+Time: (\d{1,15}) size: (\d{1,9}) .*crc: (\d{1,10}) isvalid: (true|false)"
)
_RECORD = re.compile(r"\|?(?: offset: (\d{1,19}) \w+: (-?\d{1,15}) keySize: .*? headerKeys: \[[^]]*\])? ?(.*)")
_RECORD_BEGINS = ("|", " payload: ")
"""Starts of a record's line; the second one with --skip-record-metadata before 4.0."""
_FILE = re.compile(r"Dumping (?P<path>.*)")
_SNAPSHOT = re.compile(r"Snapshot end offset: (\d{1,19}), epoch: \d+")
_CUT_OFF = re.compile(r"Found (\d{1,19}) invalid bytes at the end of ")
_CHATTER = re.compile(
    r"Log starting offset: |KRaft bootstrap snapshot|Non-consecutive offsets in |Mismatches in :|  "
    r"|SLF4J|log4j:|WARNING: |OpenJDK |Java HotSpot|Picked up |$"
)
"""Other lines of the tool, and messages of a JVM at its start if both outputs are redirected."""
_LEADER_CHANGE = 2


class _Section(NamedTuple):
    """The part of a text that is about one file."""

    path: Path
    begin: int
    """Its first line."""
    suffix: str
    """Suffix of the file that was printed."""
    end_offset: int | None = None
    """End offset of a snapshot."""


@dataclass(slots=True)
class DumpedCopy(Copy):
    """A copy of which only the printed text exists."""

    sections: list[_Section] = field(default_factory=list)

    def batches(self) -> Iterator[FoundBatch]:
        """Every batch, in order of offsets.

        Raises:
            Unreadable: a line is not what the tool prints, or a batch does not follow the one before.
        """
        self.tail_bytes, self.foreign = 0, None
        return in_order(batch for one in self.sections if one.suffix == ".log" for batch in self._batches(one))

    def _batches(self, section: _Section) -> Iterator[FoundBatch]:
        reader = _Reader(section)
        yield from reader.batches()
        self.tail_bytes += reader.tail_bytes
        if (found := reader.foreign) is not None:
            self.foreign = found if self.foreign is None else self.foreign.with_more(found.lines)


def open_dump(paths: list[Path]) -> DumpedCopy:
    """Open the printed text of one node's log: segments and snapshots in order, one or several per file.

    Raises:
        Unreadable: a line is too long, or a file has an unsupported compression.
    """
    sections = [section for path in paths for section in _sections(path)]
    snapshots = [
        SnapshotFile(one.path, one.end_offset, partial(_records_of, one))
        for one in sections
        if one.suffix == ".checkpoint" and one.end_offset is not None
    ]
    return DumpedCopy(directory=paths[0], segments=paths, snapshots=snapshots, sections=sections)


def _sections(path: Path) -> Iterator[_Section]:
    # A text may have lost its first lines.
    section = _Section(path, 1, ".log")
    for line in lines_of(path, MOST_LINE_CHARACTERS):
        if found := _FILE.fullmatch(line.text):
            yield section
            section = _Section(path, line.number + 1, Path(found["path"]).suffix)
        elif found := _SNAPSHOT.fullmatch(line.text):
            section = section._replace(suffix=".checkpoint", end_offset=int(found[1]))
    yield section


def _records_of(section: _Section) -> Iterator[MetadataRecord]:
    return (record for batch in _Reader(section).batches() for record in batch.records or ())


class _Reader:
    """Reads one section."""

    def __init__(self, section: _Section) -> None:
        self._path = section.path
        self._begin = section.begin
        self._header: BatchHeader | None = None
        self._text: list[str] = []
        self._records: list[MetadataRecord] = []
        self._displaced: Unreadable | None = None
        """The first record of the current batch that is not at its offset, which is reported if records are missing."""
        self._blank = 0
        self._epoch = -1
        self.tail_bytes = 0
        self.foreign: LeftOut | None = None

    def batches(self) -> Iterator[FoundBatch]:
        """The batches that were printed."""
        for number, text, is_cut in lines_of(self._path, MOST_LINE_CHARACTERS):
            if number < self._begin:
                continue
            if is_cut:
                raise self._refused(number, " is too long")
            if found := _BATCH.match(text):
                yield from self._whole()
                self._header = self._header_of(number, found)
            elif text.startswith(_RECORD_BEGINS):
                self._take(number, text)
            elif _FILE.fullmatch(text):
                break
            else:
                self._other(number, text)
        yield from self._whole()

    def _refused(self, number: int, why: str) -> Unreadable:
        return Unreadable(f"{self._path}: line {number}{why}")

    def _other(self, number: int, text: str) -> None:
        if text.startswith("baseOffset: "):
            raise self._refused(number, " is not a batch that Kafka's tool prints of a metadata log")
        if found := _CUT_OFF.match(text):
            self.tail_bytes = int(found[1])
        elif not text:
            self._blank += 1
        elif not (_CHATTER.match(text) or _SNAPSHOT.fullmatch(text)):
            first = LeftOut(0, f"{self._path}:{number}")
            self.foreign = (self.foreign or first).with_more(1)

    def _header_of(self, number: int, found: re.Match[str]) -> BatchHeader:
        base, last, count, epoch, is_control, at_ms, size, crc, is_valid = found.groups()
        if is_valid != "true":
            raise self._refused(number, f": Kafka's tool says that the batch at offset {base} is not valid")
        if int(last) - int(base) + 1 != int(count):
            raise self._refused(number, f": the counts of the batch at offset {base} do not agree")
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
            int(crc),
            MAGIC,
        )

    def _whole(self) -> Iterator[FoundBatch]:
        header, records, blank = self._header, self._records, self._blank
        if header is not None:
            is_control = bool(header.attributes & CONTROL_BIT)
            if is_control and not records and blank == header.record_count:
                # With --skip-record-metadata, the tool ends the line of a control record without any content.
                kind = "LeaderChange" if header.stamped_epoch > self._epoch else None
                at = header.base_offset, header.max_timestamp_ms, header.stamped_epoch
                records = [MetadataRecord(at[0] + n, *at[1:], kind, {}, _LEADER_CHANGE, 0) for n in range(blank)]
            if len(records) != header.record_count:
                raise Unreadable(
                    f"{self._path}: the batch at offset {header.base_offset} has {len(records)} records of "
                    f"{header.record_count}; the text was cut off, or printed without --cluster-metadata-decoder"
                )
            if self._displaced is not None:
                raise self._displaced
            self._epoch = header.stamped_epoch
            yield FoundBatch(header, "".join(self._text).encode(), self._path, tuple(records))
        self._header, self._text, self._records, self._blank = None, [], [], 0

    def _take(self, number: int, text: str) -> None:
        header, found = self._header, _RECORD.fullmatch(text)
        if header is None:
            raise self._refused(number, " is a record in front of its batch")
        assert found is not None, "the expression takes everything behind the bar"
        # Without its metadata a record has the batch's: all records of a batch are appended at one time.
        expected = header.base_offset + len(self._records)
        offset, at_ms = int(found[1] or expected), int(found[2] or header.max_timestamp_ms)
        if self._displaced is None and offset != expected:
            self._displaced = self._refused(number, f": the record at offset {offset} must be at {expected}")
        try:
            check_moment(at_ms)
            content = content_of(found[3])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Unreadable) as error:
            raise self._refused(number, f", offset {offset}: {error}") from error
        if content is None and not found[3] and header.attributes & CONTROL_BIT:
            raise self._refused(number, " has nothing behind its sizes: the tool ended there, its errors say why")
        if content is None:
            raise self._refused(number, " is not a record; print it with --cluster-metadata-decoder")
        self._text.append(text)
        self._records.append(MetadataRecord(offset, at_ms, header.stamped_epoch, *content))
