"""Where a service's settings come from: flags, then `STRANDLINE_...` variables, then a file, then defaults.

Invariant: settings are read once, at the edge; everywhere else they are frozen values. Every value knows its origin,
so that an operator need not guess why a service behaves as it does.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from strandline.core.truncation import historic_fault
from strandline.core.types import Rules, Truncation
from strandline.runtime.variables import PREFIX, unknown_variable

ENV_PREFIX = "STRANDLINE_"


class Origin(StrEnum):
    """Where a value came from, strongest first."""

    FLAG = "flag"
    VARIABLE = "variable"
    FILE = "file"
    DEFAULT = "default"


class SettingsWrong(Exception):
    """A setting cannot be used; the sentence names it and says what is allowed."""


class SettingMissing(SettingsWrong):
    """No source gives a required setting."""


def _served(truncation: Truncation) -> Truncation:
    if fault := historic_fault(Rules(truncation=truncation)):
        raise ValueError(fault)
    return truncation


ServedTruncation = Annotated[Truncation, AfterValidator(_served)]
"""How a follower finds its cut, in a server: a rule that Kafka abandoned is refused."""


class ServiceSettings(BaseModel):
    """Base of every service's settings. Lists are written with commas in flags and variables."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


_Settings = TypeVar("_Settings", bound=ServiceSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[_Settings]):
    """Settings and, by field name, where each came from."""

    settings: _Settings
    origins: Mapping[str, Origin]


def load_settings(
    kind: type[_Settings],
    *,
    flags: Mapping[str, object],
    variables: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded[_Settings]:
    """Merge the sources.

    Raises:
        SettingMissing: naming the first required setting that nobody gave.
        SettingsWrong: naming the first wrong setting or unknown variable, or an unreadable file.
    """
    environment = os.environ if variables is None else variables
    known = kind.model_fields
    if unknown := unknown_variable(environment, known):
        raise SettingsWrong(unknown)
    sources: dict[Origin, Mapping[str, object]] = {
        Origin.FILE: _read_file(file) if file is not None else {},
        Origin.VARIABLE: {
            name: environment[ENV_PREFIX + name.upper()] for name in known if ENV_PREFIX + name.upper() in environment
        },
        Origin.FLAG: {name: value for name, value in flags.items() if value is not None},
    }
    values: dict[str, object] = {}
    origins = dict.fromkeys(known, Origin.DEFAULT)
    for origin, found in sources.items():
        values.update(found)
        origins.update({name: origin for name in found if name in known})
    try:
        return Loaded(settings=kind.model_validate(values), origins=origins)
    except ValidationError as error:
        wrong = SettingMissing if error.errors()[0]["type"] == "missing" else SettingsWrong
        raise wrong(_sentence(error, origins)) from error


_NO_COMMANDS: Mapping[str, str] = {}


def parse_flags(
    kind: type[ServiceSettings], program: str, arguments: Sequence[str], commands: Mapping[str, str] = _NO_COMMANDS
) -> tuple[dict[str, str], Path | None]:
    """``--node-id 1 --config file.yaml`` as flags by field name, and the settings file; exits with 2 on wrong usage.

    ``commands``: what may come instead, with what each does; the help lists them, and one that is misspelled is named.
    """
    listed = "\n".join(f"  {name:<12}{text}" for name, text in commands.items())
    parser = argparse.ArgumentParser(
        prog=program,
        description=(kind.__doc__ or "").partition("\n")[0],
        epilog=f"commands instead of settings:\n{listed}" if listed else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if commands and arguments and not arguments[0].startswith("-"):
        near = difflib.get_close_matches(arguments[0], commands, n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        parser.exit(2, f"{program}: no command is named '{arguments[0]}'; {meant}There are: {', '.join(commands)}\n")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file of settings")
    for name, field in kind.model_fields.items():
        # A bare --insecure is --insecure true.
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        help_text = (field.description or "").replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=help_text, **bare)
    found = vars(parser.parse_args(arguments))
    file = found.pop("config")
    return {name: value for name, value in found.items() if value is not None}, file


def _read_file(path: Path) -> Mapping[str, object]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsWrong(f"settings file {path} cannot be read: {error}") from error
    except RecursionError:
        raise SettingsWrong(f"settings file {path} cannot be read: it is nested too deeply") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsWrong(f"settings file {path} must hold 'name: value' lines")
    return {str(name).replace("-", "_"): value for name, value in content.items()}


def _sentence(error: ValidationError, origins: Mapping[str, Origin]) -> str:
    first = error.errors()[0]
    name, said = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    if not name:
        return said
    if first["type"] == "missing":
        return (
            f"setting {name} is missing; give --{name.replace('_', '-')}, {PREFIX}{name.upper()}, or a line of --config"
        )
    origin = origins.get(name)
    return f"setting {name}{f' (from {origin})' if origin else ''}: {said}"


def split_commas(value: object) -> object:
    """``"a, b"`` as ``("a", "b")``; a list stays as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value
