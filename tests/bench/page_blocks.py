"""Blocks of a page that a run writes: between two marks, each by the tool that its first mark names.

Invariant: writing a block leaves the rest of the page unchanged; writing the page again keeps the blocks.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

_BLOCK = re.compile(r"<!-- (?P<name>[^:>]+): written by `[^`]+` -->\n.*?<!-- end of (?P=name) -->\n", re.DOTALL)


def write_block(page: Path, name: str, tool: str, text: str) -> None:
    """Put a block into a page: in its own place, or at the end of a page that has none of that name."""
    block = f"<!-- {name}: written by `{tool}` -->\n{text.rstrip()}\n\n<!-- end of {name} -->\n"
    before = page.read_text()
    if any(found["name"] == name for found in _BLOCK.finditer(before)):
        page.write_text(_BLOCK.sub(lambda found: block if found["name"] == name else found[0], before))
    else:
        page.write_text(f"{before.rstrip()}\n\n{block}")


@cache
def measured_commit() -> str:
    """The commit that a run measures: figures of another one say little about the current one.

    Asked once: what the run itself writes into docs/ does not make its commit dirty.
    """
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def blocks_of(page: Path) -> str:
    """All blocks of a page, for a tool that writes the page again."""
    found = _BLOCK.finditer(page.read_text()) if page.exists() else ()
    return "\n".join(block[0] for block in found)
