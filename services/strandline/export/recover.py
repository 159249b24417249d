"""The export of a process that was killed and does not run again yet: what its spool holds, placed as files.

The next process on its data directory would place the same files, under the same names.

Invariant: a spool is taken from no process that runs, and goes only when its file is at its place.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from strandline.export.destination import Destination
from strandline.export.encoding import ExportFormat
from strandline.export.files import FileExport, FileLimits
from strandline.export.spool import Spool

_LOCKS = (".lock", "lock")
"""What a data node, and a controller whose store is elsewhere, hold while they run."""


class StillRuns(Exception):
    """A process uses the data directory."""


def recover(data_dir: Path, destination: Destination, kind: ExportFormat, said: Callable[[str], None]) -> int:
    """Place what a killed process left; returns how many files that were.

    Raises:
        StillRuns: the process runs, and exports by itself.
        OSError: the destination does not take a file; what it did not take stays in the spool.
    """
    with _held(data_dir):
        outlet = FileExport(destination, kind, FileLimits(waiting_bytes=1 << 40), said, Spool(data_dir))
        outlet.tend(0)
        if outlet.stats.waiting_files:
            raise OSError(outlet.stats.last_failure)
        return outlet.stats.files


@contextmanager
def _held(data_dir: Path) -> Iterator[None]:
    """Keep a data directory from other processes that look."""
    locks = [path for name in _LOCKS if (path := data_dir / name).exists()]
    if not locks and _is_named(data_dir):
        raise StillRuns(f"the process that {data_dir / 'endpoint.json'} names runs")
    with ExitStack() as files:
        try:
            for path in locks:
                fcntl.flock(files.enter_context(path.open("rb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StillRuns(f"a process runs on {data_dir}") from error
        yield


def _is_named(data_dir: Path) -> bool:
    """Whether the directory names a process that lives."""
    try:
        os.kill(int(json.loads((data_dir / "endpoint.json").read_text(encoding="utf-8"))["pid"]), 0)
    except (FileNotFoundError, ProcessLookupError, ValueError, KeyError):
        return False
    except PermissionError:
        pass  # It is another user's.
    return True
