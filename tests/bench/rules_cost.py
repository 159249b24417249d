"""Measures what rules of who may do what cost those who write: pairs of the closed loop over TLS, with and without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from bars import OURS, OVER_TLS, all_cpu
from bench import Bench, Figures, Row
from child import in_loop
from clusters import cluster
from parties import strandline
from plan import Shape
from report import size_row, span

from strandline.cli.local.local_cluster import LocalCluster
from strandline.client import Admin
from strandline.core.permissions import MOST_RULES, Operation, Pattern, Permission, ResourceType, Rule

_SHAPE = Shape(64, 5)
_PRINCIPALS = 1_000
_MOST_TIMES = 1.05
_HOLDER = "client"
_WITHOUT, _WITH = OVER_TLS, f"{OURS}, TLS, {MOST_RULES:,} rules"


def rows(bench: Bench) -> Iterator[Row]:
    """What all processes use for a MB, the turns of the two changing; all figures are of the client's certificate."""
    home = bench.directory / "rules"
    ruled = {"node_settings": {"authorization": "acl"}, "controller_settings": {"authorization": "acl"}}
    with (
        cluster(home / "off", "page-cache", tls=True) as off,
        cluster(home / "acl", "page-cache", tls=True, **ruled) as acl,
    ):
        in_loop(_fill(acl))
        parties = [strandline(off, _WITHOUT, holder=_HOLDER), strandline(acl, _WITH, holder=_HOLDER)]
        times, used = [], {party.name: [] for party in parties}
        for number in range(bench.plan.rule_pairs):
            found: dict[str, Figures | None] = {}
            for party in parties if number % 2 else reversed(parties):
                measure = partial(party.measure, _SHAPE, bench.plan.pace)
                found[party.name] = bench.attempted(party.name, measure)
            pair = {name: all_cpu(figures) for name, figures in found.items() if figures is not None}
            if len(pair) == len(parties):
                times.append(pair[_WITH] / pair[_WITHOUT])
                for name, value in pair.items():
                    used[name].append(value)
    for name, values in used.items():
        yield size_row(f"CPU ms/MB, all processes, of {name}, {_SHAPE.name}, {len(values)} pairs", span(values, 2))
    obtained = median(times)
    yield size_row(
        f"with rules, of that without (from {min(times):.2f} to {max(times):.2f} x)",
        f"{obtained:.3f} x",
        f"at most {_MOST_TIMES} x",
        obtained <= _MOST_TIMES,
    )


async def _fill(running: LocalCluster) -> None:
    """As many rules as there may be: one is the measured client's, the others are of a thousand principals."""
    granted = Permission.ALLOW, Operation.WRITE, ResourceType.TOPIC, Pattern.PREFIXED
    rules = [Rule(f"client/{_HOLDER}", *granted, "bench-")]
    rules += [Rule(f"client/c{n % _PRINCIPALS}", *granted, f"team-{n}-") for n in range(MOST_RULES - 1)]
    async with Admin(running.bootstrap, timeout_ms=60_000, **running.client_tls()) as admin:
        refused = [why for why in await admin.create_acls(rules) if why is not None]
    assert not refused, f"{len(refused)} rules were refused: {refused[0]}"
