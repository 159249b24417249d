"""Where a cluster is and how to speak to it, under a name: a TOML file in the user's configuration folder.

Invariant: a profile is read whole or refused with a sentence that names the file, the field and the remedy; nothing
here writes. The folder is `$XDG_CONFIG_HOME/strandline`, by default `~/.config/strandline`.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

PROFILE_VARIABLE = "STRANDLINE_PROFILE"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class ProfileWrong(ValueError):
    """There is no such profile, or its file cannot be used; the sentence says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One cluster's addresses (host:port) and the paths of TLS, which are all given or all empty."""

    name: str
    bootstrap: tuple[str, ...]
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""

    @classmethod
    def load(cls, name: str | None = None) -> Self:
        """Read a profile; without a name that of STRANDLINE_PROFILE, else the one that `strandline profile use` chose.

        Raises:
            ProfileWrong: there is none, or its file is wrong.
        """
        wanted = name or os.environ.get(PROFILE_VARIABLE) or profile_in_use()
        if not wanted:
            raise ProfileWrong("no profile is in use; `strandline profile use NAME` chooses one")
        path = profile_path(wanted)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(profile_names()) or "none"
            raise ProfileWrong(
                f"no profile is named {wanted!r} (there are: {known}); `strandline profile create {wanted}` makes it"
            ) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ProfileWrong(f"{path}: {error}") from None
        try:
            return cls(name=wanted, **_values(document))
        except ValueError as error:
            raise ProfileWrong(f"{path}: {error}") from None

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("bootstrap names no address; write for example bootstrap = ['127.0.0.1:9092']")
        given = [bool(file) for file in (self.tls_cert, self.tls_key, self.tls_ca)]
        if any(given) and not all(given):
            raise ValueError("TLS needs tls_cert, tls_key and tls_ca together")


def profiles_folder() -> Path:
    """The folder of the profiles; it need not exist.

    Raises:
        ProfileWrong: neither XDG_CONFIG_HOME nor a home directory is known.
    """
    return _configuration_folder() / "profiles"


def profile_path(name: str) -> Path:
    """The file of a profile; it need not exist.

    Raises:
        ProfileWrong: no profile can have this name.
    """
    if not _NAME.fullmatch(name):
        raise ProfileWrong(f"{name!r} is no name of a profile; use letters, digits, '_', '-' and '.', at most 64")
    return profiles_folder() / f"{name}.toml"


def profile_names() -> list[str]:
    """The names of all profiles, sorted."""
    try:
        files = [path for path in profiles_folder().iterdir() if path.suffix == ".toml"]
    except (OSError, ProfileWrong):
        return []
    return sorted(path.stem for path in files if _NAME.fullmatch(path.stem))


def choice_path() -> Path:
    """The file that holds the name of the profile in use, on one line; it need not exist."""
    return _configuration_folder() / "profile"


def profile_in_use() -> str | None:
    """The name that `strandline profile use` chose; None if it chose none."""
    try:
        return choice_path().read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError, ProfileWrong):
        return None


def _configuration_folder() -> Path:
    # A relative path is to be ignored (XDG Base Directory Specification).
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if configured.is_absolute():
        return configured / "strandline"
    try:
        return Path.home() / ".config" / "strandline"
    except RuntimeError:
        raise ProfileWrong("no folder for profiles: set HOME or XDG_CONFIG_HOME") from None


def _values(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file; `bootstrap` is a list or one string with commas."""
    known = [field.name for field in fields(Profile) if field.name != "name"]
    unknown = sorted(document.keys() - set(known))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no field of a profile; known are {', '.join(known)}")
    values = dict(document)
    bootstrap = values.get("bootstrap", [])
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ValueError("bootstrap is no list of addresses; write for example bootstrap = ['127.0.0.1:9092']")
    values["bootstrap"] = tuple(entry.strip() for entry in entries if entry.strip())
    wrong = next(
        (name for name in known if name.startswith("tls_") and not isinstance(values.get(name, ""), str)), None
    )
    if wrong is not None:
        raise ValueError(f"{wrong} is no path; write it in quotes")
    return values
