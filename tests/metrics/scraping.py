"""A scrape as by Prometheus, in a form that tests can query."""

from __future__ import annotations

import asyncio
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from strandline.metrics.families import FAMILIES, MetricType, Role

LOOPBACK = "127.0.0.1:0"


@dataclass(frozen=True)
class Scraped:
    """Every sample of one scrape by name and labels."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """The value of one Strandline series, named without the prefix."""
        return self.samples[f"strandline_{name}", frozenset(labels.items())]

    @property
    def families(self) -> set[str]:
        """Names without the suffixes of a histogram."""
        names = {name for name, _ in self.samples}
        spread = {family.full_name for family in FAMILIES if family.kind is MetricType.HISTOGRAM}
        ends = ("_bucket", "_sum", "_count")
        return {next((name.removesuffix(e) for e in ends if name.removesuffix(e) in spread), name) for name in names}

    @property
    def ours(self) -> set[str]:
        """The Strandline ones among them."""
        return {name for name in self.families if name.startswith("strandline_")}


def scrape(address: str) -> Scraped:
    """The current metrics at this address."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = str(answer.read().decode())
    return Scraped(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


async def scraped(address: str) -> Scraped:
    """The same, while this loop continues."""
    return await asyncio.to_thread(scrape, address)


def names_of(role: Role) -> set[str]:
    """Every metric that a process of this role has."""
    return {family.full_name for family in FAMILIES if role in family.roles}
