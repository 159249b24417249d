"""What a run that takes minutes measured, as the text of its block: `docs/measured.json`, for `make docs`.

Invariant: keeping one block leaves all others unchanged.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def keep(name: str, text: str, docs: Path = DOCS) -> None:
    """Keep the text of a block; `make docs` puts it into the pages."""
    blocks = _blocks(docs) | {name: text.strip().splitlines()}
    written = json.dumps(blocks, indent=1, ensure_ascii=False, sort_keys=True)
    (docs / "measured.json").write_text(f"{written}\n", encoding="utf-8")


def kept(name: str) -> str:
    """The text of a block, as its last run kept it."""
    return "\n".join(_blocks(DOCS)[name])


def _blocks(docs: Path) -> dict[str, list[str]]:
    path = docs / "measured.json"
    blocks: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return blocks


@cache
def measured_commit() -> str:
    """The commit that a run measures: figures of another one say little about the current one.

    Asked once: what the run itself writes into docs/ does not make its commit dirty.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
