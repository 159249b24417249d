"""Every command that talks to a cluster supports TLS, and reports what is wrong with the given files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline.cli.connect import over_tls, tls_options

_THREE = {"--tls-cert", "--tls-key", "--tls-ca"}


def _commands(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_every_command_with_a_bootstrap_speaks_tls() -> None:
    """Every command that names a cluster has an option for the certificate."""
    found = {
        name: _options(command) >= _THREE
        for name, command in _commands(typer.main.get_command(app))
        if "--bootstrap" in _options(command)
    }

    assert len(found) >= 11
    assert [name for name, speaks in found.items() if not speaks] == []


def test_variables_are_the_services_own() -> None:
    """STRANDLINE_TLS_CERT, _KEY and _CA serve commands and services alike."""
    result = CliRunner().invoke(app, ["topic", "list", "--help"])

    assert {f"STRANDLINE_TLS_{name}" for name in ("CERT", "KEY", "CA")} <= set(result.output.replace("]", " ").split())


def test_what_was_given_is_known_while_the_command_runs() -> None:
    """The given TLS settings are reset after the command."""
    seen = []

    @over_tls
    def command(name: str = "x") -> None:
        seen.append((name, tls_options()))

    command(name="a", tls_cert="c", tls_key="k", tls_ca="a")  # type: ignore[call-arg]  # added by the decorator

    assert seen == [("a", {"tls_cert": "c", "tls_key": "k", "tls_ca": "a"})]
    assert tls_options() == {"tls_cert": "", "tls_key": "", "tls_ca": ""}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tls-cert", "/nowhere/tls.crt"], "tls_key and tls_ca must be given too"),
        (
            ["--tls-cert", "/nowhere/a", "--tls-key", "/nowhere/b", "--tls-ca", "/nowhere/c"],
            "tls_cert /nowhere/a cannot be read: No such file or directory",
        ),
    ],
)
def test_wrong_files_are_one_line(words: list[str], said: str) -> None:
    """Wrong files end with exit code 2 and one line that names the wrong one."""
    result = CliRunner().invoke(app, ["topic", "list", "--bootstrap", "127.0.0.1:1", *words])

    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1
