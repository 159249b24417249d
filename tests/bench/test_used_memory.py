"""Memory that a measurement finds used: how much is filled, and that it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import used_memory
from used_memory import KEPT_FREE_BYTES, UsedMemory, free_bytes


def _meminfo(tmp_path: Path, free_kib: int) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemFree: {free_kib} kB\nMemAvailable: 1 kB\n")
    return path


def test_what_is_free_beyond_the_kept_part_is_filled(tmp_path: Path) -> None:
    """As many bytes are read as are free beyond `KEPT_FREE_BYTES`, rounded up to a chunk."""
    beyond = 9 << 20
    memory = UsedMemory(tmp_path, _meminfo(tmp_path, (KEPT_FREE_BYTES + beyond) >> 10))

    assert memory.fill() == 12 << 20


def test_a_page_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call continues behind the last one; a page that is still cached would take no memory."""
    places: list[int] = []

    def read(_: int, buffers: list[bytearray], at: int) -> int:
        places.append(at)
        return len(buffers[0])

    monkeypatch.setattr(used_memory.os, "preadv", read)
    memory = UsedMemory(tmp_path, _meminfo(tmp_path, (KEPT_FREE_BYTES >> 10) + 1))
    for _ in range(3):
        memory.fill()

    assert places == [0, 4 << 20, 8 << 20]


def test_used_memory_is_left_alone(tmp_path: Path) -> None:
    """Nothing is read, and no file is made, where little is free already."""
    memory = UsedMemory(tmp_path, _meminfo(tmp_path, KEPT_FREE_BYTES >> 10))

    assert memory.fill() == 0
    assert not (tmp_path / "hole").exists()


def test_a_machine_that_does_not_say_is_left_alone(tmp_path: Path) -> None:
    """Without /proc/meminfo nothing counts as free."""
    assert free_bytes(tmp_path / "absent") == 0
    assert UsedMemory(tmp_path, tmp_path / "absent").fill() == 0


def test_filling_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is free, one call takes no longer than `LIMIT_S`."""
    monkeypatch.setattr(used_memory, "LIMIT_S", 0.0)

    assert UsedMemory(tmp_path, _meminfo(tmp_path, 1 << 40)).fill() == 0
