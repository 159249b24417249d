"""docs/SECURITY.md shows the permission table that the code has."""

from __future__ import annotations

from permission_page import PAGE, shown, table

from strandline.rpc.identity import CallerRole


def test_the_page_shows_the_table() -> None:
    """Row by row; `python tests/security/permission_page.py` writes it anew."""
    assert shown() == table()


def test_the_page_names_every_role() -> None:
    """Whoever makes a certificate finds which roles there are."""
    page = PAGE.read_text(encoding="utf-8")

    assert [role for role in CallerRole if f"| `{role}` |" not in page] == []
