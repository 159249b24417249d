"""Settings of the controller: where they come from, and which are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.controller.__main__ import _COMMANDS, main
from strandline.controller.settings import ControllerSettings
from strandline.core.types import Durability, Rules, Truncation
from strandline.runtime.settings import Origin, SettingsWrong, load_settings

BASE: dict[str, object] = {"data_dir": "/tmp/c"}


def test_defaults_are_kafkas(tmp_path: Path) -> None:
    """Session 9 s, heartbeat 2 s, automatic preferred leaders every 30 s, as in Kafka."""
    timings = ControllerSettings(data_dir=tmp_path).timings()

    assert (timings.session_timeout_ms, timings.heartbeat_interval_ms) == (9_000, 2_000)
    assert (timings.auto_leader_rebalance, timings.leader_imbalance_check_interval_ms) == (True, 30_000)


def test_flag_beats_variable_beats_file(tmp_path: Path) -> None:
    """A flag wins over a variable, a variable over the file, and every value carries its origin."""
    file = tmp_path / "controller.yaml"
    file.write_text("session-timeout-ms: 3000\nheartbeat-interval-ms: 300\nbind: 127.0.0.1:1\n")

    loaded = load_settings(
        ControllerSettings,
        flags={**BASE, "bind": "127.0.0.1:3"},
        variables={"STRANDLINE_BIND": "127.0.0.1:2", "STRANDLINE_HEARTBEAT_INTERVAL_MS": "200"},
        file=file,
    )

    found = loaded.settings
    assert (found.bind, found.heartbeat_interval_ms, found.session_timeout_ms) == ("127.0.0.1:3", 200, 3_000)
    assert [loaded.origins[name] for name in ("bind", "heartbeat_interval_ms", "session_timeout_ms", "tick_ms")] == [
        Origin.FLAG,
        Origin.VARIABLE,
        Origin.FILE,
        Origin.DEFAULT,
    ]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"heartbeat_interval_ms": 9_000}, "heartbeat_interval_ms"),
        ({"bind": "nowhere"}, "bind"),
        ({"durability": "perhaps"}, "durability"),
        ({"session_timeout_ms": "soon"}, "session_timeout_ms"),
        ({"sesion_timeout_ms": 9_000}, "sesion_timeout_ms"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object], named: str) -> None:
    """A setting that cannot be used stops the start with one message that names it."""
    with pytest.raises(SettingsWrong, match=named):
        load_settings(ControllerSettings, flags={**BASE, **wrong}, variables={})


def test_each_member_of_etcd_is_named_once() -> None:
    """Members that differ are taken as they are; a member that is named twice is refused by its address."""
    etcd = {**BASE, "store": "etcd"}
    members = "127.0.0.1:2379,127.0.0.1:2380"
    loaded = load_settings(ControllerSettings, flags={**etcd, "etcd_endpoints": members}, variables={})

    assert [member.port for member in loaded.settings.members()] == [2379, 2380]
    with pytest.raises(SettingsWrong, match=r"etcd_endpoints names 127\.0\.0\.1:2379 twice"):
        load_settings(ControllerSettings, flags={**etcd, "etcd_endpoints": f"{members},127.0.0.1:2379"}, variables={})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bakup"], "no command is named 'bakup'; did you mean 'backup'? There are: backup, restore, recover, "),
        (["frobnicate"], "no command is named 'frobnicate'; There are: backup, restore, recover, migrate, hand-over"),
    ],
)
def test_a_misspelled_command_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody who has lost a store gets the nearest command, and not the list of all settings."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a line that says what it does."""
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out.partition("commands instead of settings:")[2].split("\n")

    assert [line.split()[0] for line in listed if line.strip()] == list(_COMMANDS)
    assert all(len(line.split()) > 3 for line in listed if line.strip())


def test_every_setting_is_described() -> None:
    """`strandline settings` and --help have a sentence for each."""
    assert all(field.description for field in ControllerSettings.model_fields.values())


def test_given_rules_are_merged_with_defaults_once(tmp_path: Path) -> None:
    """At the first start a setting that is not given has its default; later it keeps its stored value."""
    given = ControllerSettings(data_dir=tmp_path, truncation=Truncation.FETCH)
    stored = Rules(truncation=Truncation.FETCH, durability=Durability.PAGE_CACHE)

    assert given.rules(None) == Rules(truncation=Truncation.FETCH)
    assert given.rules(stored) == stored
    with pytest.raises(ValueError, match="truncation"):
        given.rules(Rules())


@pytest.mark.parametrize("truncation", [Truncation.KIP_279, Truncation.KIP_101, Truncation.HIGH_WATERMARK])
def test_no_server_takes_a_historic_rule(tmp_path: Path, truncation: Truncation) -> None:
    """A rule that Kafka abandoned is rejected, with the values that servers accept."""
    with pytest.raises(ValueError, match="servers run leader-epoch or fetch"):
        ControllerSettings(data_dir=tmp_path, truncation=truncation)
