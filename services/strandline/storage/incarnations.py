"""The processes that ran from a data directory, kept so that an older copy of it is recognized (M67).

Invariant: a process is written down durably before the controller can learn of it. The controller's record therefore
names a process that this directory remembers, unless the directory went back to a time before that process.
"""

from __future__ import annotations

from pathlib import Path

from strandline.storage.disk import replace_file

NAME = "incarnations"
_HEAD = "version=1"
_MOST = 1_000
"""Starts that are remembered since the last confirmed one; the oldest, which is the confirmed one, always stays."""


def begin(directory: Path, incarnation_id: str) -> tuple[str, ...]:
    """Write a new process down, durably, and return all that are remembered, it included.

    An empty tuple if there was no such file: the directory is new, or of a release that kept none. A damaged file
    remembers no other process, which makes the directory unclean when it registers.

    Raises:
        StorageFailed: the disk failed.
    """
    known = _read(directory / NAME)
    remembered = [*(known or ()), incarnation_id]
    if len(remembered) > _MOST:
        remembered = [remembered[0], *remembered[1 - _MOST :]]
    _write(directory, remembered)
    return () if known is None else tuple(remembered)


def confirm(directory: Path, incarnation_id: str) -> None:
    """The controller registered this process: no earlier process needs to be remembered.

    Raises:
        StorageFailed: the disk failed.
    """
    _write(directory, [incarnation_id])


def _read(path: Path) -> list[str] | None:
    try:
        head, *lines = path.read_text(errors="replace").splitlines() or [""]
    except FileNotFoundError:
        return None
    # The count guards against a file that was cut: a shorter list must not pass for the whole one.
    if head != f"{_HEAD} count={len(lines)}":
        return []
    return lines


def _write(directory: Path, ids: list[str]) -> None:
    replace_file(directory / NAME, "\n".join([f"{_HEAD} count={len(ids)}", *ids, ""]).encode())
