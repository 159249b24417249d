"""What a failed commit left behind is written again before it counts as durable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from log_builder import Builder, Fill

from strandline.core.types import Offset
from strandline.storage.checkpoints import Checkpoints


@pytest.mark.parametrize("durable", [0, 3, 7])
def test_recovery_writes_the_tail_anew(
    build: Builder, fill: Fill, monkeypatch: pytest.MonkeyPatch, durable: int
) -> None:
    """After a failed fsync pages may be clean but not on disk, so data above the durable point is written again.

    A sync alone would succeed and write nothing (Rebello et al., ATC 2020).
    """
    checkpoints = Checkpoints.load(build.data)
    log, _ = build.recover(checkpoints=checkpoints)
    leo = fill(log, 10)
    log.note_durable(Offset(durable))
    checkpoints.recovery_points.save(durable=True)
    before = b"".join(path.read_bytes() for path in sorted(build.path.glob("*.log")))
    written: list[tuple[int, int]] = []
    write = os.pwritev

    def noted(fd: int, buffers: Sequence[bytes], position: int) -> int:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.suffix == ".log":
            written.append((position, position + sum(map(len, buffers))))
        return write(fd, buffers, position)

    monkeypatch.setattr(os, "pwritev", noted)
    again, recovery = build.recover()

    assert recovery.leo == leo
    assert b"".join(path.read_bytes() for path in sorted(build.path.glob("*.log"))) == before
    assert sum(end - start for start, end in written) == again.bytes_between(Offset(durable), leo)
