"""The base install is the client and its command line; every other command names the extra that it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import typer.main
from base_install import installed_with
from typer.testing import CliRunner

from strandline.cli import failures
from strandline.cli.app import app
from strandline.cli.failures import EXTRA_OF

_SCRIPT = Path(__file__).with_name("base_install.py")
_NOWHERE = ["--bootstrap", "127.0.0.1:1"]
# The words that reach the code of each command that needs an extra.
_NEEDS = {
    "server": [["up"], ["demo"], ["controller"], ["replica"], ["settings", "replica"]],
    "console": [["console"]],
    "analytics": [["analytics", "stats"], ["analytics", "timeline", "--input", "x"]],
    "sim": [["sim", "run", "--seeds", "0..2"], ["scenario", "run", "x.scenario"]],
}
_COMPLETE = [
    (["topic", "list", *_NOWHERE], "no answer"),
    (["produce", "t", *_NOWHERE], "no answer"),
    (["consume", "t", *_NOWHERE], "no answer"),
    (["cluster", "status", *_NOWHERE], "no answer"),
    (["log", "dump", "nowhere"], "nowhere: no such directory"),
]


def strandline(failures: list[str], words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The result of the command where only the base install and ``failures`` are installed."""
    command = [sys.executable, str(_SCRIPT), *failures, "--", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(("extra", "words"), [(extra, words) for extra, them in _NEEDS.items() for words in them])
def test_a_missing_extra_is_one_line(extra: str, words: list[str], tmp_path: Path) -> None:
    """The line names the command, the library and the extra with the command that installs it; no file is left."""
    ran = strandline([], words, tmp_path)

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith(f"strandline: `strandline {words[0]}` needs ")
    assert ran.stderr.endswith(f"which is not installed; in the checkout: pip install '.[{extra}]'\n")
    assert list(tmp_path.iterdir()) == []


Ran = Callable[[], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def clients_commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The client's commands, started together, because each waits its ten seconds for a cluster that does not answer;
    by their words, the result of each."""
    folder = tmp_path_factory.mktemp("clients-commands")
    with ThreadPoolExecutor(len(_COMPLETE)) as threads:
        return {
            " ".join(words): threads.submit(partial(strandline, [], words, folder)).result for words, _ in _COMPLETE
        }


@pytest.mark.parametrize(("words", "said"), _COMPLETE, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_the_base_install_runs_the_clients_commands(
    words: list[str], said: str, clients_commands: dict[str, Ran]
) -> None:
    """Commands of the client get as far as calling the cluster or reading the file."""
    ran = clients_commands[" ".join(words)]()

    assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr


def test_certificates_are_made_by_the_base_install(tmp_path: Path) -> None:
    """`strandline certs` works without an extra."""
    ran = strandline([], ["certs", "new", "certs"], tmp_path)

    assert ran.returncode == 0, ran.stderr


def test_every_command_that_needs_an_extra_exists() -> None:
    """The table of extras names commands of the program, each with an extra of the distribution."""
    commands = typer.main.get_command(app).list_commands(None)  # type: ignore[attr-defined, arg-type]  # a click group

    assert set(EXTRA_OF) < set(commands)
    assert all(installed_with([extra]) > installed_with([]) for extra in set(EXTRA_OF.values()))


def test_the_base_install_is_small() -> None:
    """The client installs no server, no log writer and no Parquet."""
    kept = installed_with([])

    assert kept & {"structlog", "prometheus-client", "msgspec", "uvloop", "pyarrow", "grpcio-reflection"} == set()
    assert len(kept) <= 25, sorted(kept)


@pytest.mark.parametrize("words", [["sim"], ["sim", "run", "--seeds", "0..2"], ["sim", "--help"]])
def test_a_command_of_a_package_that_is_not_here_says_where_it_is(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever follows its name, the answer is one line that names the package, and exit code 1."""
    monkeypatch.setattr(failures, "find_spec", lambda name: None)
    app = typer.Typer()
    for name, command in failures.installed_elsewhere():
        app.add_typer(command, name=name)
    ran = CliRunner().invoke(app, words)

    assert ran.exit_code == 1
    missing = "needs the package strandline_sim, which is not installed here; no image has it"
    assert ran.stderr == f"strandline: `strandline sim` {missing}\n"
