"""Where the time goes in the throughput bars that are missed: CPU of each process, latency and memory of both sides."""

from __future__ import annotations

from bars import BARS, Bar, Results
from cells import column, figures_of, span, table

_INTRO = (
    "Missed bars of throughput: what each process spends on a MB. "
    "[The anatomy](#anatomy-of-an-acknowledged-batch) counts where.",
    "[ADR 18](adr/0018-fetch-answers-are-encoded-around-their-records.md) has what was tried, in order and with "
    "figures, and what each missed bar would need.",
)
_PROCESSES = ("leader", "follower0", "follower1", "client")


def missed_bars(results: Results) -> str:
    """A table per shape in which a bar of throughput is missed; empty if none is.

    The other measures have the parts of their figures in their own sections.
    """
    missed = [bar for bar in BARS if bar.sides and bar.is_missed(results)]
    lines: list[str] = []
    for shape in dict.fromkeys(bar.measure for bar in missed):
        sides = dict.fromkeys(party for bar in missed if bar.measure == shape for party in _sides(bar))
        lines += [f"### {shape}", ""]
        lines += table(
            [
                "party",
                "MB/s",
                "p50 ms",
                "p99.9 ms",
                *(f"{name}, CPU ms/MB" for name in _PROCESSES),
                "others, % of a core",
            ],
            [_line(results, shape, party) for party in sides],
        )
    if not lines:
        return ""
    return "\n".join(["## Where the time goes", "", *_INTRO, "", *lines])


def _sides(bar: Bar) -> tuple[str, str]:
    assert bar.sides is not None
    return bar.sides


def _line(results: Results, shape: str, party: str) -> list[str]:
    found = figures_of(results["throughput"], shape=shape, party=party)
    cpu = [span([one["cpu_ms_per_mb"][name] for one in found if name in one["cpu_ms_per_mb"]]) for name in _PROCESSES]
    latencies = [span(column(found, name), 2) for name in ("p50_ms", "p999_ms")]
    return [party, span(column(found, "megabytes_per_s")), *latencies, *cpu, span(column(found, "others_percent"), 0)]
