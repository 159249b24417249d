"""The permission table in the form of docs/SECURITY.md; run it to rewrite the table in that page."""

from __future__ import annotations

from pathlib import Path

from strandline.rpc.permissions import EVERYBODY, TABLE

PAGE = Path(__file__).parents[2] / "docs" / "SECURITY.md"
BEGIN, END = "<!-- permissions: begin -->\n", "<!-- permissions: end -->\n"


def table() -> str:
    """One row per method: who may call it, and under which condition on the request."""
    rows = ["| service | method | who |", "|---|---|---|"]
    for method, grants in TABLE.items():
        service, _, name = method.strip("/").rpartition("/")
        if grants == EVERYBODY:
            who = "everybody with a certificate of this cluster"
        else:
            who = "; ".join(f"{role} {condition.words}".strip() for role, condition in grants.items())
        rows.append(f"| `{service.removeprefix('strandline.v1.')}` | `{name}` | {who} |")
    return "\n".join(rows) + "\n"


def shown() -> str:
    """The table that the page has now."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


def write() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    write()
