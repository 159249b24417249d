"""Profiles: names for clusters, in files of the user; and every setting's value with its origin."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline.cli.connect import names_of_profiles
from strandline.cli.failures import CommandFailed
from strandline.cli.local.profile import document_of
from strandline.cli.settings import RoleName, rules_warning, setting_rows
from strandline.client.settings import Profile, ProfileWrong, profile_path


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration folder, empty at first, and no variable of ours."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BOOTSTRAP", "PROFILE", "TLS_CERT", "TLS_KEY", "TLS_CA"):
        monkeypatch.delenv(f"STRANDLINE_{name}", raising=False)
    return tmp_path


def run(*words: str) -> Result:
    """Runs the command line."""
    return CliRunner().invoke(app, list(words))


def write(name: str, content: str) -> None:
    """A file that was written by hand."""
    profile_path(name).parent.mkdir(parents=True, exist_ok=True)
    profile_path(name).write_text(content)


def refused_address(*words: str) -> str:
    """The address that `topic list` took, as its refusal names it: those of these tests are never host:port."""
    ran = run("topic", "list", *words)
    assert ran.exit_code == 2
    return next((word for word in ("flag", "variable", "profile") if f"'{word}'" in ran.stderr), ran.stderr)


def test_a_profile_that_cannot_be_written_whole_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one is written beside it and takes its place at once, or not at all."""
    write("p", 'bootstrap = ["old:1"]\n')

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(Path, "replace", full)
    ran = run("profile", "create", "p", "--bootstrap", "new:1", "--replace")

    assert ran.exit_code != 0 and "No space left on device" in ran.stderr
    assert profile_path("p").read_text() == 'bootstrap = ["old:1"]\n'


def test_a_profile_is_created_used_listed_and_shown(tmp_path: Path) -> None:
    """What `create` was given is what the client loads and what `list` and `show` print."""
    for name in ("cert", "key", "ca"):
        (tmp_path / name).touch()
    files = [word for name in ("cert", "key", "ca") for word in (f"--tls-{name}", str(tmp_path / name))]
    made = run("profile", "create", "staging", "-b", "a:1, b:2", *files)
    run("profile", "create", "local", "--bootstrap", "127.0.0.1:9092", "--use")
    listed = json.loads(run("profile", "list", "-o", "json").stdout)
    shown = run("profile", "show", "staging")
    found = [(row["name"], row["in_use"], row["bootstrap"]) for row in listed]

    assert made.exit_code == 0, made.stderr
    assert Profile.load("staging") == Profile(
        name="staging",
        bootstrap=("a:1", "b:2"),
        tls_cert=str(tmp_path / "cert"),
        tls_key=str(tmp_path / "key"),
        tls_ca=str(tmp_path / "ca"),
    )
    assert Profile.load() == Profile(name="local", bootstrap=("127.0.0.1:9092",))
    assert found == [("local", True, ["127.0.0.1:9092"]), ("staging", False, ["a:1", "b:2"])]
    assert shown.stdout.splitlines()[:2] == [f"# {profile_path('staging')}", 'bootstrap = ["a:1", "b:2"]']
    assert names_of_profiles("s") == ["staging"]


def test_a_profile_has_a_token_in_the_place_of_a_certificate(tmp_path: Path) -> None:
    """With `tls_ca`, and without a certificate; what else is given is refused by name."""
    for name in ("ca", "token"):
        (tmp_path / name).touch()
    ca, token = ("--tls-ca", str(tmp_path / "ca")), ("--token-file", str(tmp_path / "token"))
    made = run("profile", "create", "p", "-b", "a:1", *ca, *token)
    alone = run("profile", "create", "q", "-b", "a:1", *token)

    assert made.exit_code == 0, made.stderr
    assert Profile.load("p").token_file == str(tmp_path / "token")
    assert "token_file needs tls_ca, and neither tls_cert nor tls_key" in " ".join(alone.stderr.split())


def test_a_flag_counts_before_a_variable_and_that_before_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address comes from the first of the three; a variable that overrides a named profile is reported."""
    write("mine", "bootstrap = 'profile'")
    assert refused_address("--profile", "mine") == "profile"
    run("profile", "use", "mine")
    assert refused_address() == "profile"

    monkeypatch.setenv("STRANDLINE_BOOTSTRAP", "variable")
    assert refused_address() == "variable"
    assert refused_address("-b", "flag") == "flag"
    named = run("topic", "list", "--profile", "mine")
    both = run("topic", "list", "--profile", "mine", "-b", "flag")

    assert "STRANDLINE_BOOTSTRAP overrides the profile" in named.stderr
    assert "overrides" not in both.stderr


def test_a_profile_is_chosen_by_flag_variable_or_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """--profile overrides STRANDLINE_PROFILE, which overrides `profile use`."""
    for name in ("flag", "variable", "profile"):
        write(name, f"bootstrap = ['{name}']")
    run("profile", "use", "profile")
    assert refused_address() == "profile"
    monkeypatch.setenv("STRANDLINE_PROFILE", "variable")
    assert refused_address() == "variable"
    assert Profile.load().name == "variable"
    assert refused_address("--profile", "flag") == "flag"


def test_the_certificates_of_a_profile_are_used() -> None:
    """A command reads the files of TLS that the profile names."""
    write("tls", "bootstrap = '127.0.0.1:1'\ntls_cert = '/c'\ntls_key = '/k'\ntls_ca = '/nowhere/ca.pem'")
    ran = run("topic", "list", "--profile", "tls")

    assert ran.exit_code == 2
    assert "/nowhere/ca.pem" in ran.stderr or "/c" in ran.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("bootstrap = ", "Invalid value"),
        ("", "bootstrap names no address"),
        ("bootstrap = []", "bootstrap names no address"),
        ("bootstrap = 5", "bootstrap is not a list"),
        ("bootstrap = [5]", "bootstrap is not a list"),
        ("bootstrap = 'a:1'\nbootstarp = 'b:1'", "'bootstarp' is not a field of a profile; known are bootstrap"),
        ("bootstrap = 'a:1'\ntls_cert = 'c'", "tls_cert, tls_key and tls_ca together"),
        ("bootstrap = 'a:1'\ntls_cert = 1\ntls_key = 'k'\ntls_ca = 'a'", "tls_cert is not a path"),
        ("bootstrap = 'a:1'\nname = 'other'", "'name' is not a field"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name(content: str, said: str) -> None:
    """Loading, using and any command name the file, the field and the remedy, in one line, with exit code 2."""
    write("wrong", content)
    with pytest.raises(ProfileWrong, match=said):
        Profile.load("wrong")
    for ran in (run("profile", "use", "wrong"), run("topic", "list", "--profile", "wrong")):
        assert ran.exit_code == 2
        assert str(profile_path("wrong")) in ran.stderr
        assert ran.stderr.count("\n") == 1
    assert json.loads(run("profile", "list", "-o", "json").stdout)[0]["wrong"]


def test_a_profile_that_is_not_there_is_named_with_those_that_are() -> None:
    """The message lists the profiles and says how to make one; a name that can be none is rejected."""
    write("mine", "bootstrap = 'a:1'")
    with pytest.raises(
        ProfileWrong, match=r"no profile is named 'yours' \(there are: mine\); `strandline profile create"
    ):
        Profile.load("yours")
    for name in ("../mine", ".mine", "", "a b", "x" * 65):
        assert run("profile", "create", name, "-b", "a:1").exit_code == 2, name


def test_a_profile_is_replaced_only_on_request() -> None:
    """`create` rejects an existing name, a missing file of TLS, and a wrong address, and then writes nothing."""
    write("mine", "bootstrap = 'a:1'")
    assert "--replace" in run("profile", "create", "mine", "-b", "b:1").stderr
    assert run("profile", "create", "new", "-b", "nowhere").exit_code == 2
    assert run("profile", "create", "new", "-b", "a:1", "--tls-cert", "/nowhere").exit_code == 2
    assert Profile.load("mine").bootstrap == ("a:1",)
    assert run("profile", "create", "mine", "-b", "b:1", "--replace").exit_code == 0
    assert Profile.load("mine").bootstrap == ("b:1",)
    assert [path.name for path in profile_path("mine").parent.iterdir()] == ["mine.toml"]


def test_a_deleted_profile_is_no_longer_in_use() -> None:
    """`delete` removes the file and the choice; commands then ask for an address again."""
    write("mine", "bootstrap = 'profile'")
    run("profile", "use", "mine")
    deleted, again = run("profile", "delete", "mine"), run("profile", "delete", "mine")

    assert (deleted.exit_code, again.exit_code) == (0, 2)
    assert "Missing option '--bootstrap'" in refused_address()


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_path_can_be_written(path: str) -> None:
    """A string of a profile is read back as it was, whatever its characters."""
    import tomllib

    profile = Profile(name="x", bootstrap=("a:1",), tls_cert=path, tls_key=path, tls_ca=path)

    assert tomllib.loads(document_of(profile))["tls_key"] == path


def test_settings_tell_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag wins over a variable, a variable over the file, the file over the default; a missing value is reported."""
    (tmp_path / "node.yaml").write_text("rack: file\nnode_id: 4\ntune: tick_ms=20\n")
    monkeypatch.setenv("STRANDLINE_RACK", "variable")
    rows = setting_rows(RoleName.REPLICA, ["--config", str(tmp_path / "node.yaml"), "--data-dir", "/d"])
    found = {row["setting"]: (row["value"], row["origin"]) for row in rows}

    assert found["data_dir"] == ("/d", "flag")
    assert found["rack"] == ("variable", "variable")
    assert found["node_id"] == (4, "file")
    assert found["tune.tick_ms"] == (20, "file")
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
