"""Target 13: what a Kafka cluster left behind becomes a history, or one sentence that names the file and the place.

A metadata log of true records is damaged, cut, or made of any bytes; a broker's log is lines of every known form,
damaged, with any text between.

Invariant: no exception but `Unreadable` leaves a reader, its text is one line that names the file, and memory stays
within `MOST_BYTES`, whatever length a field declares.
"""

from __future__ import annotations

import struct
import tempfile
import tracemalloc
from functools import cache
from pathlib import Path

from draws import Draws

from strandline.export.destination import LocalDirectory
from strandline.kafka.history.broker_logs import read_logs
from strandline.kafka.history.importing import Import
from strandline.kafka.history.line_forms import FORMS
from strandline.kafka.history.log_files import open_copy
from strandline.kafka.history.log_layout import DEFAULT_PATTERN, layout_of
from strandline.kafka.history.record_table import RECORDS
from strandline.kafka.history.wire import Unreadable
from strandline.records.batch import stamp
from strandline.records.codec import NewRecord, encode_batch

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
        draws.choice((_check_metadata_log, _check_broker_log))(draws)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= MOST_BYTES, f"{peak} bytes were held for an input of {len(data)}"


@cache
def _warm() -> None:
    """Load what a first import loads, which is no memory of an input."""
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


def _check_broker_log(draws: Draws) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "server.log"
        path.write_bytes(b"\n".join(_line(draws) for _ in range(draws.integer(1, 12))))
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
    if kind == 2:
        at = draws.integer(0, len(text))
        text[at:at] = draws.taken(draws.integer(0, 30)) * draws.integer(1, 50)
    return bytes(text)


def _check_sentence(said: str, *places: str) -> None:
    assert "\n" not in said
    assert any(place in said for place in places), said
