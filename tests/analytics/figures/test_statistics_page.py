"""docs/STATISTICS.md and the declarations of the statistics agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "STATISTICS.md").read_text(encoding="utf-8")
SECTIONS = {
    f"s{int(number):02}": (title.strip(), body)
    for number, title, body in re.findall(r"^## S(\d+) (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
FUNCTIONS = [
    ast.unparse(node).replace("'", '"')
    for path in Path(__file__).parent.glob("test_statistics_of_*.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body
]
"""Of the tests of statistics: each names its statistic and its history."""


def test_the_page_has_every_statistic_and_no_other() -> None:
    """The page has a section for each, in the order of the statistics."""
    assert list(SECTIONS) == list(ALL)


@pytest.mark.parametrize("statistic", ALL.values(), ids=list(ALL))
def test_a_section_has_the_columns_that_are_declared(statistic: Statistic) -> None:
    """Name and meaning of each column, in order, and no others; one line may have several columns of one quantity."""
    title, body = SECTIONS[statistic.id]
    rows = [
        (re.findall(r"\w+", names), meaning)
        for names, meaning in re.findall(r"^- ((?:`\w+`(?:, )?)+): (.*)$", body, re.M)
    ]
    declared = {v.name: v.meaning for v in (*statistic.extra, *statistic.values)}

    assert title == statistic.title
    assert f"`{statistic.name}`" in body
    assert [name for names, _ in rows for name in names] == list(declared)
    assert [meaning for names, meaning in rows if len(names) == 1] == [
        declared[names[0]] for names, _ in rows if len(names) == 1
    ]


@pytest.mark.parametrize("statistic", ALL.values(), ids=list(ALL))
def test_a_unit_is_in_the_name_of_its_column(statistic: Statistic) -> None:
    """A column has `_us`, `_records` or `_bytes` at its end if and only if that is its unit."""
    suffixes = {"us", "records", "bytes"}
    values = (*statistic.extra, *statistic.values)

    assert [v.name for v in values if v.unit in suffixes and not v.name.endswith(f"_{v.unit}")] == []
    assert [v.name for v in values if v.unit not in suffixes and v.name.rpartition("_")[2] in suffixes] == []


@pytest.mark.parametrize("statistic", ALL.values(), ids=list(ALL))
def test_the_example_of_a_section_is_tested(statistic: Statistic) -> None:
    """The history that the example cites is there, and the tests of the statistic compute it."""
    _, body = SECTIONS[statistic.id]
    cited = re.findall(r"`(\w+)\.jsonl`", body.partition("\nExample, ")[2])
    computed = [code for code in FUNCTIONS if f'"{statistic.id}"' in code]

    assert cited
    for history in cited:
        assert (Path(__file__).parents[1] / "histories" / f"{history}.jsonl").exists()
        assert any(f'"{history}"' in code for code in computed)


def test_the_page_names_the_columns_of_every_row() -> None:
    """The page explains the columns of every result once."""
    shared = PAGE.partition("## Columns of every row")[2].partition("\n## ")[0]

    for name in ("stat", "coverage", "n_zombie", "n_duplicate", "n_gap", "clock_regressions", "code_version"):
        assert f"`{name}`" in shared
