"""Clocks of single processes: the wall clock jumps by hours, the monotonic clock runs at another rate.

Invariant: a process's monotonic clock never jumps and never goes back, because no kernel allows it. libfaketime 0.9.10
cannot do that: its monotonic clock is its wall clock, and Python's waits (sem_clockwait) then never end; with
FAKETIME_DONT_FAKE_MONOTONIC its rates do not affect time-outs. Therefore this module has `clock_shim.c`, which is
compiled when it is needed.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from harness.cluster import Cluster
from harness.facilities import Facility, program
from harness.scenario import Fault

_SOURCE = Path(__file__).with_name("clock_shim.c")
_ORDERS = struct.Struct("=Qqqqdd")
_COUNT = struct.Struct("=Q")
_NS = 1_000_000_000


def compiler_missing() -> str | None:
    """What this machine lacks to compile the shim."""
    lacking = program("gcc", "gcc libc6-dev")
    if lacking or Path("/usr/include/stdio.h").exists():
        return lacking
    return "the headers of libc are not there (on Debian: apt-get install libc6-dev)"


CLOCKS = Facility(name="clock shim", lacking=compiler_missing)


def compiled(folder: Path) -> Path:
    """The shim as a library in ``folder``, compiled if it is not there."""
    library = folder / "clock_shim.so"
    if not library.exists():
        gcc = shutil.which("gcc")
        assert gcc is not None, compiler_missing()
        command = [gcc, "-O2", "-Wall", "-shared", "-fPIC", str(_SOURCE), "-o", str(library), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, timeout=60)
    return library


@dataclass(slots=True)
class Clock:
    """The clock of one process that was started with `environment`."""

    folder: Path
    """Where the library and the orders lie; made if missing."""
    name: str
    rate: float = 1.0
    wall_offset_s: float = 0.0
    _turn: int = 0
    _since_ns: int = 0
    _shown_ns: int = 0
    _mapped: mmap.mmap = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        compiled(self.folder)
        with self._path.open("wb") as orders:
            orders.write(bytes(_ORDERS.size + _COUNT.size))
        with self._path.open("r+b") as orders:
            self._mapped = mmap.mmap(orders.fileno(), 0)
        self.set()

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which the process must be started."""
        return {"LD_PRELOAD": str(compiled(self.folder)), "STRANDLINE_CLOCK": str(self._path)}

    def set(self, *, rate: float = 1.0, wall_offset_s: float = 0.0) -> None:
        """From now on the clock runs at ``rate``, and the wall clock is off by ``wall_offset_s``; both at once.

        A change of the rate keeps the time that the clock has gained or lost so far.
        """
        now_ns = time.monotonic_ns()
        # From 0 at the first call, where the clock shows the truth.
        shown_ns = self._shown_ns + int((now_ns - self._since_ns) * self.rate)
        before, self.rate = self.rate, rate
        self._since_ns, self._shown_ns, self.wall_offset_s = now_ns, shown_ns, wall_offset_s
        fields = (int(wall_offset_s * _NS), now_ns, shown_ns, rate, before)
        self._mapped[:8] = struct.pack("=Q", self._turn + 1)
        self._mapped[8 : _ORDERS.size] = _ORDERS.pack(0, *fields)[8:]
        self._turn += 2
        self._mapped[:8] = struct.pack("=Q", self._turn)

    @property
    def wrong_answers(self) -> int:
        """How often the process read a clock, or waited by it, while it was wrong."""
        return int(_COUNT.unpack_from(self._mapped, _ORDERS.size)[0])

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.name}.clock"


@dataclass(slots=True)
class WrongClock(Fault):
    """One process's clock is wrong, by ``rate`` and ``wall_offset_s``; undone by setting both right."""

    clock: Clock
    rate: float = 1.0
    wall_offset_s: float = 0.0

    async def apply(self, cluster: Cluster) -> None:
        self.clock.set(rate=self.rate, wall_offset_s=self.wall_offset_s)

    async def undo(self, cluster: Cluster) -> None:
        self.clock.set()

    def described(self) -> str:
        return f"WrongClock({self.clock.name}, rate {self.rate:g}, wall {self.wall_offset_s:+g} s)"
