"""docs/SECURITY.md has every role of the code; `make docs` writes its table of permissions."""

from __future__ import annotations

from pathlib import Path

from strandline.rpc.permissions import CallerRole

PAGE = Path(__file__).resolve().parents[2] / "docs" / "SECURITY.md"


def test_the_page_names_every_role() -> None:
    """The page lists all roles for certificates."""
    page = PAGE.read_text(encoding="utf-8")

    assert [role for role in CallerRole if f"| `{role}` |" not in page] == []
