"""Commands of packages beside strandline, where such a package is not installed."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from strandline.cli import extras


@pytest.mark.parametrize("words", [["sim"], ["sim", "run", "--seeds", "0..2"], ["sim", "--help"]])
def test_a_command_of_a_package_that_is_not_here_says_where_it_is(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever follows its name, the answer is one line that names the package, and exit code 1."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    app = typer.Typer()
    for name, command in extras.installed_elsewhere():
        app.add_typer(command, name=name)
    ran = CliRunner().invoke(app, words)

    assert ran.exit_code == 1
    assert (
        ran.stderr
        == "strandline: `strandline sim` needs the package strandline_sim, which is not here; no image has it\n"
    )
