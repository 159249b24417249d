"""An unknown variable is rejected by name; those of other services and of links are not checked."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import typer

from strandline.cli.app import app
from strandline.console.settings import ConsoleSettings
from strandline.controller.settings import ControllerSettings
from strandline.node.settings import ReplicaSettings
from strandline.runtime.settings import OF_OTHERS, PREFIX, SettingsWrong, load_settings, unknown_variable

REQUIRED = {"node_id": "1", "data_dir": "/d", "controllers": "127.0.0.1:1"}


def _of_commands(command: Any) -> set[str]:
    names = {name for option in command.params for name in _listed(option.envvar)}
    return names.union(*(_of_commands(below) for below in getattr(command, "commands", {}).values()))


def _listed(envvar: str | list[str] | None) -> list[str]:
    return [envvar] if isinstance(envvar, str) else envvar or []


def test_every_variable_of_a_service_or_command_is_known_to_all() -> None:
    """A setting that is added to one service does not stop the others that share its environment."""
    fields = {*ReplicaSettings.model_fields, *ControllerSettings.model_fields, *ConsoleSettings.model_fields}
    every = {PREFIX + name.upper() for name in fields} | _of_commands(typer.main.get_command(app))

    assert sorted(every - OF_OTHERS) == []


def test_a_command_refuses_a_misspelled_variable() -> None:
    """A command would otherwise go to another cluster than the one that was meant, or say that none was given."""
    environment = {**os.environ, "STRANDLINE_BOOTSTRP": "127.0.0.1:1"}
    ended = subprocess.run(
        [sys.executable, "-m", "strandline.cli", "topic", "list"], env=environment, capture_output=True, text=True
    )

    assert ended.returncode == 2
    assert ended.stderr == (
        "strandline: variable STRANDLINE_BOOTSTRP is no setting; did you mean STRANDLINE_BOOTSTRAP?\n"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("STRANDLINE_RAKC", "variable STRANDLINE_RAKC is no setting; did you mean STRANDLINE_RACK?"),
        ("STRANDLINE_SESSION_TIMEOUT", "did you mean STRANDLINE_SESSION_TIMEOUT_MS?"),
        ("STRANDLINE_XYZZY", "variable STRANDLINE_XYZZY is no setting; `strandline settings` lists those there are"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(name: str, said: str) -> None:
    """For a mistyped name the message has the intended one, and the service does not start with the default."""
    with pytest.raises(SettingsWrong) as raised:
        load_settings(ReplicaSettings, flags=REQUIRED, variables={name: "1"})

    assert said in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        "STRANDLINE_SESSION_TIMEOUT_MS",
        "STRANDLINE_BOOTSTRAP",
        "STRANDLINE_PORT",
        "STRANDLINE_CONTROLLER_SERVICE_HOST",
        "STRANDLINE_CONTROLLER_SERVICE_PORT_CLIENTS",
        "STRANDLINE_CONTROLLER_PORT_9092_TCP_ADDR",
        "OTHER",
    ],
)
def test_variables_of_others_are_let_be(name: str) -> None:
    """A variable of another service, or one that Kubernetes sets for a Service of this name, is not an error."""
    assert unknown_variable([name], ReplicaSettings.model_fields) is None
