"""Metric values in a scrape: what is observed is what is exposed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from strandline.metrics import families as f
from strandline.metrics.families import FAMILIES, Kind
from strandline.metrics.figures import Figure, Histogram, Tally
from strandline.metrics.port import metrics_of


def _text(*figures: Figure) -> str:
    class _Given(Collector):
        def collect(self) -> list[Metric]:
            return list(metrics_of(figures))

    registry = CollectorRegistry()
    registry.register(_Given())
    return generate_latest(registry).decode()


def test_a_histogram_counts_each_duration_once() -> None:
    """A value on a bound belongs to it, one beyond all bounds to +Inf, and the sum is theirs."""
    histogram = Histogram((0.5, 1.0))
    for seconds in (0.25, 0.5, 0.75, 4.0):
        histogram.observe(seconds)
    text = _text(Figure(f.FSYNC, histogram.spread()))

    assert 'strandline_fsync_seconds_bucket{le="0.5"} 2.0' in text
    assert 'strandline_fsync_seconds_bucket{le="1.0"} 3.0' in text
    assert 'strandline_fsync_seconds_bucket{le="+Inf"} 4.0' in text
    assert "strandline_fsync_seconds_count 4.0" in text
    assert "strandline_fsync_seconds_sum 5.5" in text


def test_a_tally_shows_its_causes_before_they_happen() -> None:
    """A counter that begins at 0 lets Prometheus see the first increase."""
    tally = Tally(f.ISR_SHRINKS, "lag", "other")
    tally.add("lag", 2)
    text = _text(*tally.figures())

    assert 'strandline_isr_shrinks_total{cause="lag"} 2.0' in text
    assert 'strandline_isr_shrinks_total{cause="other"} 0.0' in text


def test_names_and_types_agree() -> None:
    """A counter ends in _total, a histogram in its unit, no name occurs twice, everything has a description."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.endswith("_total") is (family.kind is Kind.COUNTER), family
        assert family.kind is not Kind.HISTOGRAM or family.name.endswith("_seconds"), family
        assert family.help.endswith("."), family
        assert ("topic" in family.labels) is family.per_partition, family
