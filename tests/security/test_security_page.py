"""docs/SECURITY.md has the permission table of the code."""

from __future__ import annotations

from permission_page import PAGE, shown, table

from strandline.rpc.permissions import CallerRole


def test_the_page_shows_the_table() -> None:
    """Row by row; `python tests/security/permission_page.py` rewrites it."""
    assert shown() == table()


def test_the_page_names_every_role() -> None:
    """The page lists all roles for certificates."""
    page = PAGE.read_text(encoding="utf-8")

    assert [role for role in CallerRole if f"| `{role}` |" not in page] == []
