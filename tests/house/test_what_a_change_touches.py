"""CONTRIBUTING.md counts the files of a new RPC and of a new statistic; the tree agrees with it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 14

LISTED = re.findall(r"^\d+\. `([^`]+)`$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
WORDS = re.compile(r"delete_?records|DeletedPartition|DeletePartition|convert_deletion", re.IGNORECASE)


def test_the_files_of_an_rpc_are_those_that_are_listed() -> None:
    """Every product file that names DeleteRecords is in the list, at most 14 of them; neither the simulator nor what is
    generated counts."""
    found = [
        str(path.relative_to(ROOT))
        for top in ("protos/strandline", "services/strandline")
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".proto") and "sim" not in path.relative_to(ROOT).parts and not _is_generated(path)
        if WORDS.search(path.read_text(encoding="utf-8"))
    ]

    assert sorted(found) == sorted(LISTED)
    assert len(found) <= MOST


def _is_generated(path: Path) -> bool:
    return "_pb2" in path.name or path == ROOT / "services/strandline/client/sync.py"


def test_a_statistic_is_registered_nowhere_but_in_its_file() -> None:
    """No other file of the product names the module of a statistic, unless it computes with it."""
    files = sorted((ROOT / "analytics/strandline_analytics/stats").glob("s[0-9][0-9]_*.py"))
    names = {path.stem for path in files}
    naming = {
        path.name: sorted(name for name in names if name in path.read_text(encoding="utf-8"))
        for path in (ROOT / "analytics").rglob("*.py")
        if path not in files and any(name in path.read_text(encoding="utf-8") for name in names)
    }

    assert len(files) >= 20
    assert "__init__.py" not in naming, naming
