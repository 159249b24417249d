"""Where a setting comes from, and which variables are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from pydantic import BeforeValidator, Field, model_validator

from strandline.cli.app import app
from strandline.console.settings import ConsoleSettings
from strandline.controller.settings import ControllerSettings
from strandline.node.settings import ReplicaSettings
from strandline.runtime import settings


class Sample(settings.ServiceSettings):
    """Settings for this test only."""

    size: int = Field(1, ge=1, description="a size")
    name: str = "default"
    parts: Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)] = ()


def test_flags_beat_variables_beat_the_file_beats_defaults(tmp_path: Path) -> None:
    """A flag wins over a variable, a variable over the file, the file over a default; each value has its origin."""
    file = tmp_path / "settings.yaml"
    file.write_text("size: 2\nname: file\n")
    loaded = settings.load_settings(
        Sample, flags={"size": "4"}, variables={"STRANDLINE_SIZE": "3", "STRANDLINE_NAME": "variable"}, file=file
    )

    assert (loaded.settings.size, loaded.settings.name) == (4, "variable")
    named = {
        "size": settings.Origin.FLAG,
        "name": settings.Origin.VARIABLE,
        "parts": settings.Origin.DEFAULT,
        "tune": settings.Origin.DEFAULT,
        "grpc_transport": settings.Origin.DEFAULT,
    }
    assert loaded.origins == named


def test_lists_are_written_with_commas() -> None:
    """A flag or variable holds a list as one word."""
    loaded = settings.load_settings(Sample, flags={}, variables={"STRANDLINE_PARTS": "a, b"})

    assert loaded.settings.parts == ("a", "b")


def test_a_wrong_value_is_named_with_its_origin() -> None:
    """The message for a wrong value says where to correct it."""
    with pytest.raises(settings.SettingsWrong, match=r"size \(from variable\)"):
        settings.load_settings(Sample, flags={}, variables={"STRANDLINE_SIZE": "0"})


class Required(settings.ServiceSettings):
    """A setting without a default, and a rule between two of them."""

    node_id: int
    low: int = 0
    high: int = 1

    @model_validator(mode="after")
    def _ordered(self) -> Required:
        if self.low > self.high:
            raise ValueError("low is above high; exchange them")
        return self


def test_a_missing_setting_is_named_with_the_ways_to_give_it() -> None:
    """The sentence is ours, not the library's."""
    with pytest.raises(settings.SettingsWrong) as raised:
        settings.load_settings(Required, flags={}, variables={})

    assert str(raised.value) == "setting node_id is missing; give --node-id, STRANDLINE_NODE_ID, or a line of --config"


def test_a_rule_between_settings_is_said_as_it_is() -> None:
    """No word of the library stands before it."""
    with pytest.raises(settings.SettingsWrong) as raised:
        settings.load_settings(Required, flags={"node_id": "1", "low": "2"}, variables={})

    assert str(raised.value) == "low is above high; exchange them"


UNREADABLE = r"settings file .*settings\.yaml cannot be read: "


@pytest.mark.parametrize(
    ("text", "words"),
    [("sise: 2\n", "sise"), *((text, UNREADABLE) for text in ("[" * 20_000, "{a: " * 5_000, "a: [", "\x00"))],
    ids=["unknown name", "lists", "maps", "cut", "zero"],
)
def test_a_settings_file_that_is_wrong_is_refused(tmp_path: Path, text: str, words: str) -> None:
    """A misspelt setting is never silently ignored, and what cannot be read is one sentence that names the file."""
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    with pytest.raises(settings.SettingsWrong, match=words):
        settings.load_settings(Sample, flags={}, variables={}, file=file)


def test_flags_are_named_as_the_fields() -> None:
    """`--size 3 --config FILE` gives the flag and the file."""
    flags, file = settings.parse_flags(Sample, "sample", ["--size", "3", "--config", "x.yaml"])

    assert (flags, file) == ({"size": "3"}, Path("x.yaml"))


def test_wrong_usage_exits_with_2() -> None:
    """An unknown flag ends with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        settings.parse_flags(Sample, "sample", ["--nosuch"])

    assert ended.value.code == 2


REQUIRED = {"node_id": "1", "data_dir": "/d", "controllers": "127.0.0.1:1"}


def _of_commands(command: Any) -> set[str]:
    names = {name for option in command.params for name in _listed(option.envvar)}
    return names.union(*(_of_commands(below) for below in getattr(command, "commands", {}).values()))


def _listed(envvar: str | list[str] | None) -> list[str]:
    return [envvar] if isinstance(envvar, str) else envvar or []


def test_every_variable_of_a_service_or_command_is_known_to_all() -> None:
    """A setting that is added to one service does not stop the others that share its environment."""
    fields = {*ReplicaSettings.own_names(), *ControllerSettings.own_names(), *ConsoleSettings.own_names()}
    every = {settings.PREFIX + name.upper() for name in fields} | _of_commands(typer.main.get_command(app))

    assert [name for name in sorted(every) if settings.unknown_variable([name], ())] == []


def test_a_tuned_value_is_set_by_tune_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--tune, its variable and its line of a file work; a flag, variable or line of the value's own is refused with
    what to give."""
    flags, _ = settings.parse_flags(ReplicaSettings, "replica", ["--tune", "tick_ms=7", "--tune", "fsync_threads=2"])
    loaded = settings.load_settings(ReplicaSettings, flags=REQUIRED | flags, variables={})
    file = tmp_path / "settings.yaml"
    file.write_text("tick_ms: 7\n")
    with pytest.raises(settings.SettingsWrong) as of_a_file:
        settings.load_settings(ReplicaSettings, flags=REQUIRED, variables={}, file=file)
    with pytest.raises(settings.SettingsWrong) as of_a_variable:
        settings.load_settings(ReplicaSettings, flags=REQUIRED, variables={"STRANDLINE_TICK_MS": "7"})
    with pytest.raises(SystemExit) as of_a_flag:
        settings.parse_flags(ReplicaSettings, "replica", ["--tick-ms", "7"])

    assert (loaded.settings.tick_ms, loaded.settings.fsync_threads) == (7, 2)
    assert loaded.origins["tick_ms"] == "flag"
    assert str(of_a_file.value) == "setting tick_ms (from file): write it as 'tune: tick_ms=VALUE'"
    said = "variable STRANDLINE_TICK_MS is not a setting; give STRANDLINE_TUNE=tick_ms=VALUE"
    assert str(of_a_variable.value) == said
    assert (of_a_flag.value.code, capsys.readouterr().err) == (
        2, "replica: --tick-ms is not a flag; give --tune tick_ms=VALUE\n",
    )  # fmt: skip


def test_tune_in_a_variable_is_shared_by_services() -> None:
    """A node ignores what tunes the controller, and refuses a name that tunes nothing."""
    shared = {"STRANDLINE_TUNE": "part_bytes=200,tick_ms=7"}

    assert settings.load_settings(ReplicaSettings, flags=REQUIRED, variables=shared).settings.tick_ms == 7
    with pytest.raises(settings.SettingsWrong, match="'tick=7' is not NAME=VALUE with one of export_file_bytes, "):
        settings.load_settings(ReplicaSettings, flags=REQUIRED, variables={"STRANDLINE_TUNE": "tick=7"})
    with pytest.raises(settings.SettingsWrong, match=r"setting tick_ms \(from flag\): "):
        settings.load_settings(ReplicaSettings, flags={**REQUIRED, "tune": "tick_ms=0"}, variables={})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("STRANDLINE_RAKC", "variable STRANDLINE_RAKC is not a setting; did you mean STRANDLINE_RACK?"),
        ("STRANDLINE_SESSION_TIMEOUT", "did you mean STRANDLINE_SESSION_TIMEOUT_MS?"),
        ("STRANDLINE_XYZZY", "variable STRANDLINE_XYZZY is not a setting; `strandline settings` lists those there are"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_name(name: str, said: str) -> None:
    """For a mistyped name the message has the intended one, and the service does not start with the default."""
    with pytest.raises(settings.SettingsWrong) as raised:
        settings.load_settings(ReplicaSettings, flags=REQUIRED, variables={name: "1"})

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
    assert settings.unknown_variable([name], ReplicaSettings.model_fields) is None
