"""The value of the key head: what was written, or damage that is named, never another head."""

from __future__ import annotations

import pytest

from strandline.core.reigns.events import Head
from strandline.metadata.documents import DamagedDocument
from strandline.metadata.etcd_layout import head_value, read_head

HEAD = Head("a" * 32, 1_207, "0123456789abcdef" * 2, 55)


def test_a_head_is_read_as_it_was_written() -> None:
    """With the revision at which it was found."""
    assert read_head(head_value(HEAD), 55) == HEAD


def test_a_head_without_a_checksum_is_still_read() -> None:
    """An earlier build's value, byte for byte."""
    assert read_head(b"%s 1207 %s" % (HEAD.reign_id.encode(), HEAD.digest.encode()), 55) == HEAD


@pytest.mark.parametrize("bit", range(8))
def test_one_bit_anywhere_is_damage(bit: int) -> None:
    """In the offset too, which no digest covers."""
    value = head_value(HEAD)
    for at in range(len(value)):
        changed = bytearray(value)
        changed[at] ^= 1 << bit
        with pytest.raises(DamagedDocument):
            read_head(bytes(changed), 55)


def test_a_cut_value_is_damage() -> None:
    """Wherever it was cut; but without its checksum alone it is the value of an earlier build, and true."""
    value = head_value(HEAD)
    named = value.rindex(b" ")
    for end in (*range(named), *range(named + 1, len(value))):
        with pytest.raises(DamagedDocument):
            read_head(value[:end], 55)
    assert read_head(value[:named], 55) == HEAD


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"a 007 " + b"0" * 32,
        b"a -1 " + b"0" * 32,
        b"a 7 " + b"0" * 31,
        b"a 7 " + b"0" * 32 + b"\n",
        b"\xff 7 " + b"0" * 32,
    ],
)
def test_what_no_build_wrote_is_named_with_the_remedy(value: bytes) -> None:
    """The sentence says what is damaged and what to run."""
    with pytest.raises(DamagedDocument, match=r"the key head is damaged .*`strandline controller recover`"):
        read_head(value, 1)
