"""Lines from files and pipes, and how a separator splits them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from strandline.cli.ask.record_input import lines_of, open_source, split_line


async def collect(descriptor: int) -> list[bytes]:
    """All lines."""
    return [line async for line in lines_of(descriptor)]


async def test_a_file_gives_its_lines(tmp_path: Path) -> None:
    """Empty lines are lines; the last needs no line feed."""
    path = tmp_path / "text"
    path.write_bytes(b"one\n\nthree")
    with open_source(path) as source:
        lines = await collect(source)

    assert lines == [b"one", b"", b"three"]


async def test_long_lines_cross_chunks(tmp_path: Path) -> None:
    """A line longer than one read stays one line."""
    path = tmp_path / "text"
    path.write_bytes(b"x" * 700_000 + b"\nend\n")
    with open_source(path) as source:
        lines = await collect(source)

    assert [len(line) for line in lines] == [700_000, 3]


async def test_a_pipe_gives_each_line_when_it_comes() -> None:
    """A line is available before the next is written, and nothing blocks meanwhile."""
    reading, writing = os.pipe()
    lines = lines_of(reading)
    os.write(writing, b"first\nsec")
    async with asyncio.timeout(10):
        first = await anext(lines)
        os.write(writing, b"ond\n")
        second = await anext(lines)
        os.close(writing)
        rest = [line async for line in lines]
    os.close(reading)

    assert (first, second, rest) == (b"first", b"second", [])


@pytest.mark.parametrize(
    ("line", "parts"),
    [(b"k:v", (b"k", b"v")), (b"k:v:w", (b"k", b"v:w")), (b"v", (None, b"v")), (b":v", (b"", b"v"))],
)
def test_a_separator_parts_key_and_value(line: bytes, parts: tuple[bytes | None, bytes]) -> None:
    """The first separator counts; a line without one has no key, an empty key is a key."""
    assert split_line(line, b":") == parts
    assert split_line(line, None) == (None, line)
