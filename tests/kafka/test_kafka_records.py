"""The decoder of metadata logs against Kafka's own, and against bytes that nobody meant."""

from __future__ import annotations

import base64
import json
import lzma
import re
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_a_files import RUN_A

from strandline_kafka.metadata.log_files import open_copy, read_records, snapshot_records
from strandline_kafka.metadata.record_table import RECORDS
from strandline_kafka.metadata.records import MetadataRecord, decode_value
from strandline_kafka.metadata.wire import Unreadable

NO_OP = bytes((1, 20, 0, 0))
_DEFAULTS = (None, (), 0, -1, -2, False)


def read_all(directory: Path) -> list[MetadataRecord]:
    return [record for batch in open_copy(directory).batches() for record in read_records(batch)]


def dumped() -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Offset, time and payload of each record, as kafka-dump-log printed them."""
    for line in lzma.decompress((RUN_A / "dump-log.txt.xz").read_bytes()).decode().splitlines():
        found = re.match(r"\| offset: (\d+) CreateTime: (-?\d+) .* payload: (\{.*\})$", line)
        if found:
            yield int(found[1]), int(found[2]), json.loads(found[3])


def in_our_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {re.sub(r"(?=[A-Z])", "_", name).lower(): in_our_names(each) for name, each in value.items()}
    if isinstance(value, list):
        return tuple(map(in_our_names, value))
    if isinstance(value, str) and re.fullmatch(r"[\w-]{22}", value):
        return str(UUID(bytes=base64.urlsafe_b64decode(value + "==")))
    return value


def test_every_record_is_what_kafka_dump_log_printed(run_a_node: Any) -> None:
    """Offset, time, kind, version and every field of 1,626 records agree with Kafka's own decoder."""
    ours = {record.offset: record for record in read_all(run_a_node(1))}
    compared = 0
    for offset, at_ms, payload in dumped():
        record = ours[offset]
        name = payload["type"].removesuffix("_RECORD").replace("_", "").lower()
        assert (str(record.kind).lower(), record.version, record.timestamp_ms) == (name, payload["version"], at_ms)
        said = in_our_names(payload["data"])
        if RECORDS[record.number].fields is not None:
            renamed = {{"id": "broker_id"}.get(key, key): value for key, value in said.items()}
            assert {key: record.fields[key] for key in renamed} == renamed
            assert all(record.fields[key] in _DEFAULTS for key in record.fields.keys() - renamed.keys())
        compared += 1
    assert compared == 1626


def test_run_a_has_these_records(run_a_node: Any) -> None:
    """The log holds 1,658 records of 14 kinds, and not one that is unknown."""
    assert Counter(record.kind for record in read_all(run_a_node(1))) == {
        "NoOp": 1544,
        "PartitionChange": 54,
        "BrokerRegistrationChange": 20,
        "Partition": 7,
        "FeatureLevel": 6,
        "Config": 5,
        "RegisterBroker": 5,
        "RegisterController": 5,
        "Topic": 4,
        "ClearElr": 4,
        "LeaderChange": 1,
        "BeginTransaction": 1,
        "EndTransaction": 1,
        "RemoveTopic": 1,
    }


def test_the_offsets_are_dense(run_a_node: Any) -> None:
    """Every offset from 0 to 1,657 is read once, in order."""
    assert [record.offset for record in read_all(run_a_node(1))] == list(range(1658))


def test_a_snapshot_is_read_to_its_footer(run_a_node: Any) -> None:
    """A snapshot begins with its header and ends with its footer."""
    (snapshot,) = open_copy(run_a_node(3)).snapshots
    kinds = [record.kind for record in snapshot_records(snapshot)]
    assert (snapshot.end_offset, kinds[0], kinds[-1]) == (142, "SnapshotHeader", "SnapshotFooter")


def test_a_snapshot_that_was_cut_off_is_refused(run_a_node: Any) -> None:
    """A snapshot without its footer is not believed."""
    (snapshot,) = open_copy(run_a_node(3)).snapshots
    snapshot.path.write_bytes(snapshot.path.read_bytes()[:-40])
    with pytest.raises(Unreadable, match=r"the snapshot has no end; it was cut off at position \d+ of \d+"):
        list(snapshot_records(snapshot))


def test_a_kind_that_is_not_known_is_named_and_not_read() -> None:
    """A number without an entry in the table gives its number, and no kind."""
    assert decode_value(bytes((1, 99, 0, 1, 2, 3))) == (99, 0, None, {})


def test_a_version_above_the_newest_is_not_read() -> None:
    """A version that the table does not know gives no kind, however its bytes may look."""
    assert decode_value(bytes((1, 20, 7, 0))) == (20, 7, None, {})


def test_bytes_behind_the_fields_are_an_error() -> None:
    """A known version with something behind its fields is refused: the table would be wrong."""
    with pytest.raises(Unreadable, match="NoOp version 0 has 1 bytes more than its fields"):
        decode_value(NO_OP + b"\0")


def test_secrets_are_skipped_by_their_number() -> None:
    """Of a SCRAM credential nothing but the kind leaves the decoder."""
    assert decode_value(bytes((1, 11, 0)) + b"\x04salt") == (11, 0, "UserScramCredential", {})


def test_an_unknown_tagged_field_is_skipped() -> None:
    """A tag that a later release added does not hinder reading."""
    assert decode_value(bytes((1, 20, 0, 1, 42, 2, 0xAB, 0xCD)))[2] == "NoOp"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (bytes((1, 28, 0, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F)), "a field of 4294967293 bytes is declared where 0 bytes"),
        (bytes((1, 20, 0, 65)), "65 tagged fields are declared, at most 64 are read"),
        (bytes((1, 20, 0, 1, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F)), "a field of 4294967295 bytes"),
        (bytes((2, 20, 0, 0)), "frame version 2 must be 1"),
        (bytes((0xFF,) * 6), "a number is longer than 5 bytes"),
        (b"", "the bytes end within a number"),
    ],
)
def test_a_declared_length_is_checked_before_it_is_believed(value: bytes, said: str) -> None:
    """Lengths and counts beyond the bytes that are there are refused in a sentence."""
    with pytest.raises(Unreadable, match=said):
        decode_value(value)


def test_a_huge_count_allocates_nothing() -> None:
    """An array that declares four thousand million ids costs no memory before it is refused."""
    head = bytes((1, 3, 2)) + bytes(4) + bytes(16)
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="an array of 4294967293 elements is declared"):
            decode_value(head + bytes((0xFE, 0xFF, 0xFF, 0xFF, 0x0F)))
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()


@given(number=st.sampled_from(sorted(RECORDS)), version=st.integers(0, 5), body=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_sentence(number: int, version: int, body: bytes) -> None:
    """Whatever stands behind the frame, the decoder gives a record or `Unreadable`, and nothing else."""
    try:
        found, _, kind, fields = decode_value(bytes((1, number, version)) + body)
    except Unreadable as error:
        found, kind, fields = number, None, {}
        refused = str(error)
    else:
        refused = ""
    assert found == number
    assert kind in (None, RECORDS[number].name)
    assert len(fields) <= 16
    assert "\n" not in refused
