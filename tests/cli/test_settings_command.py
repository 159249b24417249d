"""`strandline settings`: every value with its origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.failures import CommandFailed
from strandline.cli.settings import RoleName, rules_warning, setting_rows


def test_settings_tell_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag wins over a variable, a variable over the file, the file over the default; a missing value is reported."""
    (tmp_path / "node.yaml").write_text("rack: file\nnode_id: 4\ntick-ms: 20\n")
    monkeypatch.setenv("STRANDLINE_RACK", "variable")
    rows = setting_rows(RoleName.REPLICA, ["--config", str(tmp_path / "node.yaml"), "--data-dir", "/d"])
    found = {row["setting"]: (row["value"], row["origin"]) for row in rows}

    assert found["data_dir"] == ("/d", "flag")
    assert found["rack"] == ("variable", "variable")
    assert found["node_id"] == (4, "file")
    assert found["tick_ms"] == (20, "file")
    assert found["durability"] == ("fsync", "default")
    assert found["controllers"] == (None, "must be given")


@pytest.mark.parametrize("role", [RoleName.REPLICA, RoleName.CONTROLLER])
def test_what_page_cache_costs_is_printed(role: RoleName) -> None:
    """A role that would start with page-cache prints the cost of a power loss; with fsync there is no warning."""
    cached = setting_rows(role, ["--durability", "page-cache"])
    synced = setting_rows(role, ["--truncation", "fetch"])

    assert "power loss" in (rules_warning(cached) or "")
    assert rules_warning(synced) is None


@pytest.mark.parametrize("role", [RoleName.REPLICA, RoleName.CONTROLLER])
def test_a_historic_rule_cannot_be_set(role: RoleName) -> None:
    """A server cannot be configured to a rule that loses acknowledged records; the error names the field."""
    with pytest.raises(CommandFailed, match=r"truncation.*leader-epoch or fetch"):
        setting_rows(role, ["--truncation", "high-watermark"])
