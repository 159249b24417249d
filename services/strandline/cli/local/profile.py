"""`strandline profile ...`: names for clusters, so that a command need not be given addresses and certificates.

Invariant: a file is replaced whole or not at all, and only where that was asked for.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.connect import CONNECTING, TlsCa, TlsCert, TlsKey, TokenFile, names_of_profiles
from strandline.cli.failures import explained
from strandline.cli.options import Bootstrap, Output, addresses
from strandline.cli.output import Column, Format, show

if TYPE_CHECKING:
    from strandline.client.settings import Profile

app = typer.Typer(help="Name clusters: addresses and certificates as profiles.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile.", autocompletion=names_of_profiles)]

_COLUMNS = [
    Column("in_use", "in use"),
    Column("name", "profile"),
    Column("bootstrap", "bootstrap"),
    Column("tls_cert", "TLS certificate"),
    Column("wrong", "wrong"),
]


@app.command()
@explained()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, '_', '-' and '.'.")],
    bootstrap: Bootstrap,
    tls_cert: TlsCert = "",
    tls_key: TlsKey = "",
    tls_ca: TlsCa = "",
    token_file: TokenFile = "",
    use: Annotated[bool, typer.Option("--use", help="Make it the current profile.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a profile of this name.")] = False,
) -> None:
    """Write a profile from --bootstrap and the options of TLS, or their variables."""
    from strandline.client.settings import Profile, ProfileWrong, profile_path

    path = profile_path(name)
    if path.exists() and not replace:
        raise ProfileWrong(f"profile {name} exists; give --replace to write it again")
    files = dict(zip(CONNECTING, (tls_cert, tls_key, tls_ca, token_file), strict=True))
    for option, file in files.items():
        if file and not Path(file).is_file():
            raise typer.BadParameter(f"--{option.replace('_', '-')}: there is no file {file}")
    try:
        profile = Profile(
            name=name,
            bootstrap=tuple(addresses(bootstrap)),
            **{option: str(Path(file).resolve()) for option, file in files.items() if file},
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _write(path, document_of(profile))
    typer.echo(f"profile {name}: {path}")
    if use:
        _choose(name)


@app.command()
@explained()
def use(name: Name) -> None:
    """Take addresses and certificates from this profile, wherever neither an option nor a variable gives them."""
    from strandline.client.settings import Profile

    Profile.load(name)
    _choose(name)


@app.command("list")
@explained()
def list_profiles(output: Output = Format.TABLE) -> None:
    """List the profiles, with the one in use."""
    from strandline.client.settings import Profile, ProfileWrong, profile_in_use, profile_names

    chosen = os.environ.get("STRANDLINE_PROFILE") or profile_in_use()
    rows = []
    for name in profile_names():
        try:
            rows.append(_row(Profile.load(name), chosen) | {"wrong": None})
        except ProfileWrong as error:
            rows.append({"name": name, "in_use": name == chosen, "bootstrap": [], "wrong": str(error)})
    columns = _COLUMNS if any(row["wrong"] for row in rows) else _COLUMNS[:-1]
    show(rows, columns, output, empty="no profile; `strandline profile create NAME --bootstrap HOST:PORT` makes one")


@app.command("show")
@explained()
def show_profile(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Default: the profile in use.", autocompletion=names_of_profiles),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show one profile and the file that holds it."""
    from strandline.client.settings import Profile, profile_in_use, profile_path

    profile = Profile.load(name)
    chosen = os.environ.get("STRANDLINE_PROFILE") or profile_in_use()
    if output is not Format.TABLE:
        show([_row(profile, chosen) | {"path": str(profile_path(profile.name))}], _COLUMNS, output)
        return
    typer.echo(f"# {profile_path(profile.name)}{', in use' if profile.name == chosen else ''}")
    typer.echo(document_of(profile), nl=False)


@app.command()
@explained()
def delete(name: Name) -> None:
    """Delete a profile. If it is in use, none is in use afterwards."""
    from strandline.client.settings import ProfileWrong, choice_path, profile_in_use, profile_path

    try:
        profile_path(name).unlink()
    except FileNotFoundError:
        raise ProfileWrong(f"no profile is named {name!r}; see `strandline profile list`") from None
    if profile_in_use() == name:
        with suppress(FileNotFoundError):
            choice_path().unlink()
    typer.echo(f"deleted profile {name}")


def document_of(profile: Profile) -> str:
    """A profile as TOML."""
    lines = [f"bootstrap = [{', '.join(_quoted(address) for address in profile.bootstrap)}]"]
    lines += [f"{option} = {_quoted(path)}" for option in CONNECTING if (path := getattr(profile, option))]
    return "".join(f"{line}\n" for line in lines)


def _quoted(text: str) -> str:
    """A basic string of TOML; what json escapes is escaped there in the same way, and DEL too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _row(profile: Profile, chosen: str | None) -> dict[str, Any]:
    return {
        "name": profile.name,
        "in_use": profile.name == chosen,
        "bootstrap": list(profile.bootstrap),
        **{option: getattr(profile, option) or None for option in CONNECTING},
    }


def _choose(name: str) -> None:
    from strandline.client.settings import choice_path

    _write(choice_path(), f"{name}\n")
    typer.echo(f"profile {name} is in use")


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(content, encoding="utf-8")
    beside.replace(path)
