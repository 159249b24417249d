"""What processes and the machine spent between two moments: CPU of all threads, memory, steal time, everybody else.

The counters tick every 10 ms, so an interval of a second is read to about one percent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import psutil


def cpu_ms(pid: int) -> float:
    """User and system time a process has used, all threads."""
    spent = psutil.Process(pid).cpu_times()
    return (spent.user + spent.system) * 1_000


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    return psutil.Process(pid).memory_info().rss / (1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One interval. CPU in ms and RSS at its end in MiB per process; the rest in percent."""

    elapsed_s: float
    cpu_ms: Mapping[str, float]
    rss_mib: Mapping[str, float]
    steal_percent: float
    """Of all processors: what the host took."""
    others_percent: float
    """Of one core: what processes used that are not among the watched ones, the idle parties included."""

    def figures(self, megabytes: float) -> dict[str, object]:
        """MB/s, and CPU ms per MB of each process."""
        per_mb = {name: round(ms / megabytes, 2) for name, ms in self.cpu_ms.items()}
        return {"megabytes_per_s": round(megabytes / self.elapsed_s, 1), "cpu_ms_per_mb": per_mb, **self.machine()}

    def machine(self) -> dict[str, object]:
        """What every measurement says beside its own figures, for JSON."""
        names = ("rss_mib", "steal_percent", "others_percent")
        return {name: getattr(self, name) for name in names}


class Watch:
    """Begins an interval over processes by name; `end` may be called once or more."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._used = {name: cpu_ms(pid) for name, pid in pids.items()}
        self._machine = psutil.cpu_times()
        self._began = time.perf_counter()

    def end(self) -> Spent:
        """What was spent since the beginning."""
        elapsed_s = time.perf_counter() - self._began
        now = psutil.cpu_times()
        used = {name: cpu_ms(pid) - self._used[name] for name, pid in self._pids.items()}
        steal_s = now.steal - self._machine.steal
        busy_s = _busy_s(now) - _busy_s(self._machine)
        total_s = busy_s + steal_s + now.idle + now.iowait - self._machine.idle - self._machine.iowait
        others_s = max(0.0, busy_s - sum(used.values()) / 1_000)
        return Spent(
            elapsed_s=elapsed_s,
            cpu_ms=used,
            rss_mib={name: round(rss_mib(pid), 1) for name, pid in self._pids.items()},
            steal_percent=round(100 * steal_s / max(0.01, total_s), 2),
            others_percent=round(100 * others_s / max(0.01, elapsed_s), 1),
        )


def _busy_s(times: psutil._common.scputimes) -> float:
    # Guests are counted in user time already.
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
