"""How a service's settings are written as a table for docs/OPERATIONS.md.

Invariant: only the advice is written by hand; name, default and meaning are the settings class's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.runtime.settings import ServiceSettings

_HEAD = ("setting", "default", "what it decides", "when to change it")
_RULES = frozenset({"truncation", "fetch_hw", "isr_join", "durability"})


def settings_table(kind: type[ServiceSettings], advice: Mapping[str, str]) -> str:
    """The Markdown table of a settings class, one row per setting in the class's order, without a trailing newline."""
    return _table(_HEAD, _rows(kind, advice))


def all_tables() -> dict[str, str]:
    """The tables of all services by their titles; a setting that several have alike is listed once, under "several"."""
    from strandline.cli.settings import TITLES, settings_class
    from strandline.cli.settings_advice import ADVICE

    rows = {title: _rows(settings_class(role), ADVICE[role.value]) for role, title in TITLES.items()}
    owners = {row: [title for title in rows if row in rows[title]] for own in rows.values() for row in own}
    tables = {title: _table(_HEAD, [row for row in own if owners[row] == [title]]) for title, own in rows.items()}
    shared = [(*row, ", ".join(titles)) for row, titles in owners.items() if len(titles) > 1]
    return tables | {"several services": _table((*_HEAD, "of"), shared)}


def _rows(kind: type[ServiceSettings], advice: Mapping[str, str]) -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", _default(name, field), _cell(field.description or ""), advice.get(name, ""))
        for name, field in kind.model_fields.items()
    ]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, tuple("---" for _ in head), *rows])


def _default(name: str, field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None:
        return "stored" if name in _RULES else "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple) and value:
        return f"`{','.join(value)}`"
    return f"`{value}`" if str(value) and value != () else "empty"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
