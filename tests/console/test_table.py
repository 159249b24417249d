"""The table of partitions: filters, orders and pages, for thousands of them."""

from __future__ import annotations

import pytest
from reported_cluster import NOW_MS, led, partition, picture, topic_of, tp

from strandline.console.overview import partition_rows
from strandline.console.picture import NodeLook
from strandline.console.table import PAGE_ROWS, Query, read_query, table_page

_ROWS = partition_rows(
    picture(
        topic_of(partition(0), partition(1, isr=(1, 2)), partition(2, isr=(1,)), partition(3, isr=(2,), leader=None)),
        topic_of(partition(0, topic="logs", leader=2, replicas=(1, 2), isr=(1, 2)), name="logs"),
        looks={1: NodeLook(answered_ms=NOW_MS, led={tp(0): led({1: 90, 2: 20, 3: 90}, hw=20)})},
    )
)


def _names(**query: str) -> list[str]:
    return [row.name for row in table_page(_ROWS, read_query(query)).rows]


def test_the_worst_comes_first() -> None:
    """Offline, under min ISR, at min ISR, then those only without their preferred leader, then the healthy ones."""
    assert _names() == ["tides-3", "tides-2", "tides-1", "logs-0", "tides-0"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"show": "out-of-sync"}, ["tides-3", "tides-2", "tides-1"]),
        ({"show": "offline"}, ["tides-3"]),
        ({"show": "under-min"}, ["tides-3", "tides-2"]),
        ({"show": "at-min"}, ["tides-1"]),
        ({"show": "not-preferred"}, ["logs-0"]),
        ({"show": "trouble"}, ["tides-3", "tides-2", "tides-1"]),
        ({"topic": "logs"}, ["logs-0"]),
        ({"node": "3", "sort": "name"}, ["tides-0", "tides-1", "tides-2", "tides-3"]),
        ({"q": "IDES-1"}, ["tides-1"]),
        ({"sort": "lag"}, ["tides-0", "logs-0", "tides-1", "tides-2", "tides-3"]),
    ],
)
def test_filters_and_orders(query: dict[str, str], names: list[str]) -> None:
    """Each filter shows what its name says, and each order sorts by it."""
    assert _names(**query) == names


@pytest.mark.parametrize("query", [{"page": "-1"}, {"page": "9" * 40}, {"show": "x"}, {"sort": "'"}, {"node": "٣"}])
def test_a_query_without_sense_shows_everything(query: dict[str, str]) -> None:
    """A page is returned for any query in the address."""
    assert len(_names(**query)) == 5


def test_a_page_is_bounded() -> None:
    """Five thousand partitions are a hundred pages, and the page after the last is the last."""
    rows = partition_rows(picture(topic_of(*(partition(index) for index in range(5_000)))))
    page = table_page(rows, Query(page=1_000_000, sort="name"))

    assert (len(page.rows), page.found, page.pages, page.query.page) == (PAGE_ROWS, 5_000, 100, 100)
    assert page.rows[-1].name == "tides-4999"


def test_an_address_keeps_what_was_asked() -> None:
    """A link to another page changes only the page, and defaults are left out."""
    query = read_query({"q": "a&b", "show": "offline", "page": "2"})

    assert query.url(page=3) == "/partitions?q=a%26b&show=offline&page=3"
    assert query.url(q="", show="all", page=1) == "/partitions"
