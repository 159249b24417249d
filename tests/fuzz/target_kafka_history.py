"""Target 13: what a Kafka cluster left behind becomes a history, or one sentence that names the file and the place.

A metadata log of true records is damaged, cut, or made of any bytes; what Kafka's tool prints of one is damaged line by
line; a broker's log is lines of every known form, damaged, wrapped, packed, with any text between.

Invariant: no exception but `Unreadable` leaves a reader, its text is one line that names the file, and memory stays
within `MOST_BYTES`, whatever length a field declares.
"""

from __future__ import annotations

import gzip
import json
import struct
import tempfile
import tracemalloc
from functools import cache
from importlib import import_module
from pathlib import Path

from draws import Draws

from strandline.export.destination import LocalDirectory
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch
from strandline_kafka.brokers.broker_logs import read_logs
from strandline_kafka.brokers.line_forms import FORMS
from strandline_kafka.brokers.log_layout import DEFAULT_PATTERN, layout_of
from strandline_kafka.metadata.dump_log import open_dump
from strandline_kafka.metadata.importing import Import
from strandline_kafka.metadata.log_files import open_copy
from strandline_kafka.metadata.record_table import RECORDS
from strandline_kafka.metadata.wire import Unreadable

MOST_BYTES = 32 << 20
_START_MS = 1_795_388_400_000
_LAYOUT = layout_of(DEFAULT_PATTERN)
_FEATURE = b"\x01\x0c\x00" + b"\x11metadata.version" + struct.pack(">h", 30) + b"\0"


def check(data: bytes) -> None:
    """The oracle."""
    draws = Draws(data)
    _warm()
    tracemalloc.start()
    try:
        draws.choice((_check_metadata_log, _check_dump, _check_broker_log))(draws)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MOST_BYTES, f"{peak} bytes were held for an input of {len(data)}"


@cache
def _warm() -> None:
    """Load what a first import loads, which is no memory of an input."""
    import_module("strandline.export.arrow")
    _check_metadata_log(Draws(b""))


def _check_metadata_log(draws: Draws) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "__cluster_metadata-0"
        folder.mkdir()
        (folder / f"{0:020}.log").write_bytes(_metadata_log(draws))
        try:
            work = Import([open_copy(folder)], "c", trust_tail=True)
            work.write(LocalDirectory(Path(name) / "out"))
        except Unreadable as error:
            _check_sentence(str(error), str(folder))


def _metadata_log(draws: Draws) -> bytes:
    if draws.one_in(8):
        return draws.rest()
    parts, offset = [], 0
    for values in ([_FEATURE], *([_value(draws)] for _ in range(draws.integer(1, 6)))):
        content = bytearray(encode_batch([NewRecord(None, value, _START_MS + 500 * offset) for value in values]))
        stamp(content, offset, 1)
        parts.append(bytes(content))
        offset += len(values)
    whole = bytearray(b"".join(parts))
    if draws.one_in(2):
        # Damage behind the CRC: to a length, an offset, the CRC itself, or what it covers.
        whole[draws.integer(0, len(whole) - 1)] ^= draws.integer(1, 255)
    return bytes(whole[: draws.integer(0, len(whole))]) if draws.one_in(4) else bytes(whole)


def _value(draws: Draws) -> bytes:
    number = draws.choice(sorted(RECORDS))
    return bytes((1, number, draws.integer(0, 4))) + draws.taken(draws.integer(0, 60))


_PRINTED_FEATURE = '{"name":"metadata.version","featureLevel":9}'
_PRINTED = (
    "Dumping a/00000000000000000000.log",
    "Dumping a/00000000000000000004-0000000001.checkpoint",
    "Snapshot end offset: 4, epoch: 1",
    *(
        f"baseOffset: {base} lastOffset: {last} count: {last - base + 1} baseSequence: -1 partitionLeaderEpoch: 1 "
        f"isTransactional: false isControl: {'true' if base == 0 else 'false'} position: 0 CreateTime: 1763000000100 "
        f"size: 100 magic: 2 compresscodec: none crc: 1234567 isvalid: true"
        for base, last in ((0, 0), (1, 2))
    ),
    *(
        f"| offset: {offset} CreateTime: 1763000000100 keySize: -1 valueSize: 9 sequence: -1 headerKeys: [] {content}"
        for offset, content in (
            (0, "controlType: LEADER_CHANGE(2)"),
            (0, 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}'),
            (1, f'payload: {{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{_PRINTED_FEATURE}}}'),
            (2, 'payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"eqeQMi7tTVeUHIgQvTUm1Q"}}'),
        )
    ),
    ' payload: {"type":"NO_OP_RECORD","version":0,"data":{}}',
    "Found 9 invalid bytes at the end of 00000000000000000000.log",
    "",
)
"""Lines that Kafka's tool prints; these in their order are a log, but for the first snapshot."""


def _check_dump(draws: Draws) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "dump.txt"
        given = _PRINTED if draws.one_in(2) else [draws.choice(_PRINTED) for _ in range(draws.integer(1, 12))]
        lines = [bytearray(line.encode()) for line in given]
        for _ in range(draws.integer(0, 3)):
            one, more = draws.choice(lines), draws.taken(draws.integer(0, 9))
            at = draws.integer(0, len(one))
            one[at : at + draws.integer(0, 2)] = more
        path.write_bytes(b"\n".join(lines))
        try:
            Import([open_dump([path])], "c", trust_tail=True).write(LocalDirectory(Path(name) / "out"))
        except Unreadable as error:
            _check_sentence(str(error), name)


def _check_broker_log(draws: Draws) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "server.log"
        lines = b"\n".join(_line(draws) for _ in range(draws.integer(1, 12)))
        path.write_bytes(
            draws.choice((bytes, gzip.compress, lambda text: text.decode("latin-1").encode("utf-16")))(lines)
        )
        try:
            read_logs(1, Path(name), _LAYOUT)
        except Unreadable as error:
            _check_sentence(str(error), "server.log", name)


def _line(draws: Draws) -> bytes:
    kind = draws.integer(0, 3)
    if kind == 0:
        return draws.taken(40)
    text = bytearray(f"[2026-11-22 22:51:{draws.integer(0, 59):02},246] INFO {draws.choice(FORMS).sample} (k)".encode())
    if kind == 1:
        text[draws.integer(0, len(text) - 1)] = draws.integer(0, 255)
    if draws.one_in(4):
        text = bytearray(json.dumps({"log": text.decode("utf-8", "replace"), "stream": "stdout"}).encode())
    if kind == 2:
        at = draws.integer(0, len(text))
        text[at:at] = draws.taken(draws.integer(0, 30)) * draws.integer(1, 50)
    return bytes(text)


def _check_sentence(said: str, *places: str) -> None:
    assert "\n" not in said
    assert any(place in said for place in places), said
