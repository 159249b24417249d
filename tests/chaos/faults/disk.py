"""A disk for one process whose power can be cut and whose operations can fail: a FUSE mount of its own.

Invariant: every mount is also unmounted, and a machine that cannot mount it reports what is missing (`disks_missing`),
so that a test is skipped by name and never passes for lack of a fault.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from faults.disk_rules import Rule
from faults.disk_tree import PowerCut

_CHAOS = Path(__file__).resolve().parents[1]
_START_S = 10.0


def disks_missing() -> str | None:
    """What this machine lacks for a FUSE mount; None when nothing is missing."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse cannot be opened (kernel without FUSE, or no permission)"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "fusermount3 is missing; on Debian: apt-get install fuse3"
    try:
        import mfusepy  # noqa: F401
    except ImportError:
        return "mfusepy is missing; pip install mfusepy"
    except OSError as error:
        return f"libfuse3 cannot be loaded ({error}); on Debian: apt-get install fuse3"
    return None


@dataclass(slots=True)
class Disk:
    """One mount. Use it as a context manager, or `mount` and `unmount`."""

    mount_point: Path
    """Made if missing; users of the disk work below it."""
    _state: Path = field(init=False)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        # Not beside the project's files: a socket's path has at most 107 bytes.
        self._state = Path(tempfile.mkdtemp(prefix="strandline-disk-"))

    def __enter__(self) -> Self:
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unmount()

    def mount(self) -> None:
        """Mounts an empty disk.

        Raises:
            RuntimeError: it did not come up; the message has the process's output.
        """
        self.mount_point.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "faults.fuse_process"]
        with self._output.open("wb") as sink:
            self._process = subprocess.Popen(
                [*command, str(self.mount_point.absolute()), str(self._state), str(self._control)], cwd=_CHAOS,
                stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self._output.read_text(errors="replace")
                self.unmount()
                raise RuntimeError(f"{self.mount_point} could not be mounted: {said}")
            time.sleep(0.02)

    def unmount(self) -> None:
        if self._process is not None:
            self._answer_everybody()
            if os.path.ismount(self.mount_point):
                tool = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
                subprocess.run([*tool, str(self.mount_point)], check=False, capture_output=True)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        shutil.rmtree(self._state, ignore_errors=True)

    def cut_power(self, pids: Iterable[int] = (), *, seed: int | None = None) -> PowerCut:
        """Cuts the power: drops what was not synced, kills the processes that used the disk, then restores the power.

        No answer of the disk reaches them between the two. With ``seed`` a drawn part of the unsynced data survives.
        """
        cut = self.cut(seed=seed)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.restore()
        return cut

    def cut(self, *, seed: int | None = None) -> PowerCut:
        """The first half of `cut_power`: from here on the disk answers no request, until `restore`."""
        answer = self._order("cut", seed=seed)
        return PowerCut(answer["bytes_by_path"], answer["names"])

    def restore(self) -> None:
        """The second half of `cut_power`; every process that used the disk must have been sent SIGKILL."""
        self._order("restore")

    def add(self, rule: Rule) -> None:
        self._order("rule", **asdict(rule))

    def limit(self, size_bytes: int | None) -> None:
        """From now on the disk holds no more than this; None means no limit."""
        self._order("quota", bytes=size_bytes)

    def heal(self) -> None:
        """Removes all rules and the limit."""
        self._order("heal")

    @property
    def counts(self) -> dict[str, int]:
        """How often each operation happened, by name."""
        return dict(self._order("report")["counts"])

    @property
    def hits(self) -> int:
        """How often the current rules fired."""
        return sum(rule["hits"] for rule in self._order("report")["rules"])

    @property
    def first_hit_s(self) -> float | None:
        """When the first of the current rules fired, on the machine's monotonic clock; None: none has."""
        return min(
            (rule["first_hit_s"] for rule in self._order("report")["rules"] if rule["first_hit_s"] is not None),
            default=None,
        )

    @property
    def used_bytes(self) -> int:
        return int(self._order("report")["used_bytes"])

    @property
    def unsynced(self) -> dict[str, int]:
        """Bytes that no finished sync covers, by path."""
        return dict(self._order("report")["unsynced"])

    @property
    def _control(self) -> Path:
        return self._state / "control"

    @property
    def _output(self) -> Path:
        return self._state / "output"

    def _is_up(self) -> bool:
        return os.path.ismount(self.mount_point) and self._control.exists()

    def _order(self, do: str, **details: Any) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(30)
            line.connect(str(self._control))
            line.sendall(json.dumps({"do": do, **details}).encode() + b"\n")
            answer = json.loads(line.makefile().readline())
        assert "error" not in answer, answer
        return dict(answer)

    def _answer_everybody(self) -> None:
        try:
            self.heal()
            self.restore()
        except (OSError, ValueError):
            # The process is gone, and so are the processes that waited for it.
            return
