"""`make docs`: writes every block of a page that follows from the code or from committed measurements.

A block is what a page has between `<!-- NAME: written by make docs -->` and `<!-- end of NAME -->`. The figures of runs
that take minutes are in docs/benchmarks.json, mutants.json, campaigns.jsonl and measured.json, which those runs write.

Invariant: a page changes between such marks only, and every mark names a block of `BLOCKS`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ledger
import permission_page
import report
from kept import kept, read_results
from mutants import record

from strandline.cli.settings import all_lists
from strandline.metrics import page as metrics
from strandline_analytics.tables.runtimes import pairs_table
from strandline_kafka.brokers.line_forms import FORMS

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"(<!-- (?P<name>[^:\n]+): written by make docs -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)


def _line_forms() -> str:
    """The families of lines: what becomes of their forms, each with the releases that write it."""
    families: dict[str, dict[str, list[str]]] = {}
    for form in FORMS:
        found = families.setdefault(form.family, {})
        becomes = next(reversed(found)) if form.becomes == "the same" else form.becomes
        releases = found.setdefault(becomes, [])
        releases += [form.releases] if form.releases not in releases else []
    return "\n".join(
        f"- {family}: " + "; ".join(f"{becomes} ({', '.join(releases)})" for becomes, releases in found.items())
        for family, found in families.items()
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "bench": lambda: report.page(read_results()),
    "campaigns": ledger.table,
    "line forms": _line_forms,
    "metrics": metrics.lists,
    "mutants": record.section,
    "permissions": permission_page.listed,
    "needs": permission_page.needed,
    "runtimes": pairs_table,
    "sizing": lambda: report.sizing_table(read_results()),
    "speed": lambda: report.speed_sentence(read_results()),
}
"""What makes the text of a block; a name that is not here is of the lists of settings or of docs/measured.json."""


def text_of(name: str) -> str:
    """The text of a block as it should be.

    Raises:
        KeyError: there is no block of that name.
    """
    if name.startswith("settings of "):
        return all_lists()[name.removeprefix("settings of ")]
    return BLOCKS[name]() if name in BLOCKS else kept(name)


def pages() -> Iterator[Path]:
    """Every page that may have blocks."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").glob("*.md"))


def written(page: str) -> str:
    """The page with all of its blocks as they should be."""
    return _BLOCK.sub(lambda found: f"{found[1]}{text_of(found['name']).strip()}\n{found[3]}", page)


def main() -> int:
    """Write the pages; with `--check` write nothing, name those that would change, and return 1 if there are any."""
    stale = [path for path in pages() if written(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")]
    for path in stale:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
