"""`strandline settings`: every setting of a role with its value and where the value came from.

Invariant: it reads exactly the sources that the role itself reads, by the role's own code; a value shown here is
the value the role would start with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.failures import EXIT_UNREACHABLE, CommandFailed, explained
from strandline.cli.options import Output
from strandline.cli.output import TEXT, Format, plain_columns, show

if TYPE_CHECKING:
    from strandline.runtime.settings import ServiceSettings


PASS_FLAGS: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}

_STAND_INS = {"node_id": "0", "data_dir": ".", "controllers": "127.0.0.1:1", "bootstrap": "127.0.0.1:1"}
"""Values for required settings that were not given, so that all others can be read; they are never shown."""

_COLUMNS = plain_columns(setting=TEXT, value=TEXT, origin=TEXT, meaning=TEXT)


class RoleName(StrEnum):
    """Processes that have settings."""

    CONTROLLER = "controller"
    REPLICA = "replica"
    CONSOLE = "console"


TITLES = {RoleName.REPLICA: "a data node", RoleName.CONTROLLER: "the controller", RoleName.CONSOLE: "the console"}
"""What the page of settings calls each role, in its order."""


def settings(
    context: typer.Context,
    role: Annotated[RoleName, typer.Argument(help="Service whose settings to print.")],
    output: Output = Format.TABLE,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the defaults as the list of the guide, with when to change them.")
    ] = False,
) -> None:
    """Print every setting of a role with its value and origin: flag, variable, file or default.

    Give the role's own flags after its name, --config FILE included, to see what they make of it:
    strandline settings replica --config node.yaml --node-id 1
    """
    if markdown:
        typer.echo(_list(_rows(settings_class(role))))
        return
    with explained():
        rows = setting_rows(role, list(context.args))
    show(rows, _COLUMNS, output)
    if warning := rules_warning(rows):
        typer.echo(f"warning: {warning}", err=True)


def setting_rows(role: RoleName, words: Sequence[str]) -> list[dict[str, Any]]:
    """One row per setting, in the order of the role's own help.

    Raises:
        CommandFailed: when a given value is wrong; the message names it.
    """
    from strandline.runtime.settings import PREFIX, SettingsWrong, load_settings, parse_flags

    kind = settings_class(role)
    flags, file = parse_flags(kind, f"strandline settings {role}", list(words))
    try:
        absent = _absent(kind, flags, file)
        loaded = load_settings(kind, flags={**{name: _STAND_INS[name] for name in absent}, **flags}, file=file)
    except SettingsWrong as error:
        raise CommandFailed(str(error), EXIT_UNREACHABLE) from error
    tuned = kind.tuned_names()
    return [
        {
            "setting": f"tune.{name}" if name in tuned else name,
            "value": None if name in absent else _plain(getattr(loaded.settings, name)),
            "origin": "must be given" if name in absent else loaded.origins[name].value,
            "variable": PREFIX + ("TUNE" if name in tuned else name.upper()),
            "meaning": field.description or "",
        }
        for name, field in kind.model_fields.items()
    ]


def rules_warning(rows: Sequence[dict[str, Any]]) -> str | None:
    """The warning for a role that would start with these values; None if its rules lose nothing."""
    from strandline.core.types import Durability, Rules

    value = next((row["value"] for row in rows if row["setting"] == "durability"), None)
    return Rules(durability=Durability(value)).loss_warning if value else None


def settings_class(role: RoleName) -> type[ServiceSettings]:
    """The class that a role reads its settings by."""
    if role is RoleName.CONTROLLER:
        from strandline.controller.settings import ControllerSettings

        return ControllerSettings
    if role is RoleName.CONSOLE:
        from strandline.console.settings import ConsoleSettings

        return ConsoleSettings
    from strandline.node.settings import ReplicaSettings

    return ReplicaSettings


def _absent(kind: type[ServiceSettings], flags: dict[str, str], file: Any) -> set[str]:
    """Required settings without a value from any source. Stand-ins count as flags and hide the values of lower sources;
    leaving a stand-in out shows whether there is one."""
    from strandline.runtime.settings import SettingMissing, load_settings

    required = [name for name, field in kind.model_fields.items() if field.is_required() and name not in flags]
    absent = set()
    for name in required:
        others = {other: _STAND_INS[other] for other in required if other != name}
        try:
            load_settings(kind, flags={**others, **flags}, file=file)
        except SettingMissing:
            absent.add(name)
    return absent


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, int | float | str | bool | None) else str(value)


# ---- settings_page
# How a service's settings are written as a list for docs/OPERATIONS.md.

_RULES = frozenset({"truncation", "durability"})


def all_lists() -> dict[str, str]:
    """The settings of all services by their titles; one that several services share is listed once, under "several"."""
    rows = {title: _rows(settings_class(role)) for role, title in TITLES.items()}
    owners = {row: tuple(title for title in rows if row in rows[title]) for own in rows.values() for row in own}
    lists = {title: _list(row for row in own if owners[row] == (title,)) for title, own in rows.items()}
    together = [titles for titles in dict.fromkeys(owners.values()) if len(titles) > 1]
    parts = [f"Of {', '.join(own)}:\n\n{_list(row for row in owners if owners[row] == own)}" for own in together]
    return lists | {"several services": "\n\n".join(parts)}


def _list(rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(
        f"- {name} ({default}): {meaning.rstrip(' .')}. {advice}" for name, default, meaning, advice in rows
    )


def _rows(kind: type[ServiceSettings]) -> list[tuple[str, ...]]:
    from strandline.runtime.settings import extra

    fields = {name: kind.model_fields[name] for name in kind.own_names()}
    return [
        (f"`{name}`", _default(name, field), field.description or "", extra(field)["advice"])
        for name, field in fields.items()
    ]


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
