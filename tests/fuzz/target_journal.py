"""Target: any bytes in the two files of the journal are read as frames that were written, or reported as damage.

Invariant: no exception; what is believed can be written again and read back the same; a declared size or count never
allocates more than the input holds; a journal that begins again after damage is sound.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

from draws import Draws

from strandline.core.types import EpochEntry, LeaderEpoch, Offset
from strandline.storage import checkpoint_files
from strandline.storage.checkpoints import Checkpoints
from strandline.storage.journal import JOURNAL_NAMES, Frame, encode_frame, read_file, read_journal

_NAMES = (("t", 0), ("t", 1), ("topic-with-a-longer-name", 4_000_000_000), ("", 7))
_MOST_BYTES = 40
"""Allocated per byte of input while it is read: values of a few bytes become objects of some fifty."""
_ALWAYS_BYTES = 100_000


def check(data: bytes) -> None:
    """The oracle: drawn files, or the bytes themselves."""
    draws = Draws(data)
    contents = [_content(draws), _content(draws) if draws.one_in(2) else b""]
    with TemporaryDirectory() as directory:
        path = Path(directory)
        for name, content in zip(JOURNAL_NAMES, contents, strict=True):
            (path / name).write_bytes(content)
        _check_files(path, contents)


def _content(draws: Draws) -> bytes:
    if draws.one_in(4):
        return draws.rest()
    content = bytearray()
    first, durable = draws.integer(0, 5), draws.integer(0, 6)
    for sequence in range(first, first + draws.integer(0, 5)):
        payload = checkpoint_files.encode(_save(draws) for _ in range(draws.integer(0, 3)))
        if draws.one_in(3):
            payload = _changed(draws, payload)
        complete = draws.integer(0, 9)
        content += b"".join(encode_frame(payload, sequence=sequence, durable=durable, complete=complete))
    return _changed(draws, bytes(content)) if draws.one_in(2) else bytes(content)


def _changed(draws: Draws, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draws.integer(0, 3) if changed else 0):
        changed[draws.integer(0, len(changed) - 1)] = draws.integer(0, 255)
    return bytes(changed[: draws.integer(0, len(changed))] if draws.one_in(3) else changed)


def _save(draws: Draws) -> checkpoint_files.Save:
    name, number = draws.choice(_NAMES), draws.integer(0, 1 << 40)
    epochs = tuple(EpochEntry(LeaderEpoch(at), Offset(number + at)) for at in range(draws.integer(0, 3)))
    kind = draws.choice(tuple(checkpoint_files.Kind))
    saves: tuple[checkpoint_files.Save, ...] = (
        checkpoint_files.OffsetsSaved(
            kind, tuple((of, Offset(number)) for of in _NAMES[: draws.integer(0, len(_NAMES))])
        ),
        checkpoint_files.EpochsSaved(name, "id", epochs),
        checkpoint_files.LogMade(name, "id"),
        checkpoint_files.LogForgotten(name, draws.choice(("", "id"))),
        checkpoint_files.MetadataSaved(b"m" * draws.integer(0, 9)),
    )
    return draws.choice(saves)


def _check_files(path: Path, contents: list[bytes]) -> None:
    size = sum(map(len, contents))
    tracemalloc.start()
    try:
        found = read_journal(path)
        for payload in found.payloads:
            _check_payload(payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < _ALWAYS_BYTES + _MOST_BYTES * size, f"{peak} bytes for an input of {size}"
    for content in contents:
        again = b"".join(map(_encoded, read_file(content).frames))
        assert content.startswith(again), "what was read is not what is there"
    _check_next_start(path)


def _encoded(frame: Frame) -> bytes:
    head = frame.head
    parts = encode_frame(frame.payload, sequence=head.sequence, durable=head.durable, complete=head.complete)
    return b"".join(parts)


def _check_payload(payload: bytes) -> None:
    try:
        saves = checkpoint_files.decode(payload)
    except checkpoint_files.SavesDamaged:
        return
    assert checkpoint_files.encode(saves) == payload
    assert checkpoint_files.decode(checkpoint_files.encode(saves)) == saves


def _check_next_start(path: Path) -> None:
    """Read, written into the files, begun again or gone on with: the next start reads the same and is sound."""
    first = Checkpoints.load(path)
    if first.begins_again:
        first.complete()
    first.open()
    offsets = [dict(found.offsets) for found in first.by_kind.values()]
    first.save_metadata(b"next")
    first.settle()
    first.close()
    second = Checkpoints.load(path)
    assert second.fault is None, second.fault
    assert [found.offsets for found in second.by_kind.values()] == offsets
    assert second.metadata() == b"next"
