"""A process that cannot protect its ports does not start: one line with the reason, and exit code 2."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from certificates import WRONG, Certificates, settings_of
from secured_cluster import end
from structlog.testing import capture_logs

from strandline.cli.local.local_cluster import flags
from strandline.controller.process import ControllerProcess
from strandline.controller.settings import ControllerSettings
from strandline.node.settings import ReplicaSettings
from strandline.rpc.tls import TLS_OFF
from strandline.runtime.settings import SettingsWrong, is_loopback, load_settings, parse_flags

DEADLINE_S = 30
_REPLICA = {"node_id": "1", "controllers": "127.0.0.1:1"}


def _start(module: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"strandline.{module}", *flags(settings)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.mark.parametrize(
    ("module", "case"),
    [
        ("node", "absent key"),
        ("node", "foreign authority"),
        ("node", "not valid yet"),
        ("node", "expired"),
        ("controller", "key of another"),
        ("controller", "expired"),
    ],
)
def test_a_process_with_wrong_files_says_so_and_ends(tmp_path: Path, module: str, case: str) -> None:
    """Unreadable key, mismatch of key or authority, a clock that is off: exit code 2 and one line, no traceback; a node
    has not touched its directory, so a clean one stays clean."""
    make, _ = WRONG[case]
    settings = settings_of(make(Certificates.at(tmp_path))) | {"data_dir": str(tmp_path / "data")}

    ended = _start(module, settings | (_REPLICA if module == "node" else {}))

    assert ended.returncode == 2, ended.stderr
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("strandline: tls_")
    assert module == "controller" or not (tmp_path / "data").exists()


def test_a_controller_refuses_another_clusters_certificate(tmp_path: Path) -> None:
    """The store has the cluster's id; a certificate of another cluster ends the start with the identity it needs."""
    made = Certificates.at(tmp_path)

    async def begin() -> None:
        settings = settings_of(made.files("controller/controller"))
        process = ControllerProcess(ControllerSettings(data_dir=tmp_path / "data", **settings), stop=end)
        await process.start()
        await process.shut_down()

    asyncio.run(begin())
    other = made.files("controller/controller", cluster="c2")

    ended = _start("controller", settings_of(other) | {"data_dir": str(tmp_path / "data")})

    assert ended.returncode == 2
    assert "this process needs one for strandline://c1/controller/controller" in ended.stderr


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (ReplicaSettings, {"bind": "0.0.0.0:9092", "advertise": "a"}),
        (ReplicaSettings, {"internal_bind": "10.0.0.1:9093"}),
        (ReplicaSettings, {"bind": "node-1.example:9092"}),
        (ControllerSettings, {"bind": "[::]:9092"}),
        (ControllerSettings, {"internal_bind": "192.0.2.1:9093"}),
    ],
)
def test_nothing_beyond_loopback_without_tls(tmp_path: Path, kind: Any, given: dict[str, str]) -> None:
    """The message names the setting, what is missing, and the option that allows it anyway."""
    base = {"data_dir": str(tmp_path), **(_REPLICA if kind is ReplicaSettings else {})}
    name = next(iter(given))

    with pytest.raises(SettingsWrong, match=f"{name} .* is not loopback and TLS is off.*insecure"):
        load_settings(kind, flags=base | given, variables={})

    files = settings_of(Certificates.at(tmp_path).files("replica/1"))
    load_settings(kind, flags=base | given | files, variables={})
    load_settings(kind, flags=base | given, variables={"STRANDLINE_INSECURE": "true"})


@pytest.mark.parametrize("kind", [ReplicaSettings, ControllerSettings])
def test_health_and_metrics_are_exempt(tmp_path: Path, kind: Any) -> None:
    """Probes and scrapers come from other machines and do not use TLS; their data is not secret."""
    base = {"data_dir": str(tmp_path), **(_REPLICA if kind is ReplicaSettings else {})}

    load_settings(kind, flags=base | {"health_bind": "0.0.0.0:9094", "metrics_bind": "0.0.0.0:9095"}, variables={})


@pytest.mark.parametrize("kind", [ReplicaSettings, ControllerSettings])
def test_metrics_by_https_need_a_certificate(tmp_path: Path, kind: Any) -> None:
    """The message names the setting and both remedies."""
    base = {"data_dir": str(tmp_path), "metrics_tls": "true", **(_REPLICA if kind is ReplicaSettings else {})}

    with pytest.raises(SettingsWrong, match="metrics_tls needs tls_cert, tls_key and tls_ca; give them, or set"):
        load_settings(kind, flags=base, variables={})


@pytest.mark.parametrize("kind", [ReplicaSettings, ControllerSettings])
@pytest.mark.parametrize("absent", ["tls_cert", "tls_key", "tls_ca"])
def test_tls_is_given_whole(tmp_path: Path, kind: Any, absent: str) -> None:
    """Two of the three files are an error, neither TLS nor plain text."""
    base = {"data_dir": str(tmp_path), **(_REPLICA if kind is ReplicaSettings else {})}
    two = {name: "x" for name in ("tls_cert", "tls_key", "tls_ca") if name != absent}

    with pytest.raises(SettingsWrong, match=f"{absent} must be given too"):
        load_settings(kind, flags=base | two, variables={})


def test_insecure_needs_no_value() -> None:
    """`--insecure` alone means yes, whatever follows it."""
    flags_given, _ = parse_flags(ReplicaSettings, "strandline replica", ["--insecure", "--node-id", "1"])

    assert flags_given == {"insecure": "true", "node_id": "1"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("[::]", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_what_counts_as_loopback(host: str, expected: bool) -> None:
    """Only addresses that no other machine reaches; a name is not resolved, because its address may change."""
    assert is_loopback(host) is expected


def test_a_node_without_tls_says_so_once(tmp_path: Path) -> None:
    """On loopback TLS is off, and one line of the log explains the consequence."""

    async def begin() -> None:
        process = ControllerProcess(ControllerSettings(data_dir=tmp_path / "data"), stop=end)
        await process.start()
        await process.shut_down()

    with capture_logs() as lines:
        asyncio.run(begin())

    assert [line["event"] for line in lines].count(TLS_OFF) == 1


@pytest.mark.parametrize("module", ["node", "controller"])
def test_a_process_with_a_wrong_file_of_issuers_says_so_and_ends(tmp_path: Path, module: str) -> None:
    """Exit code 2, one line, and no traceback; a node has not touched its directory, so a clean one stays clean."""
    made = Certificates.at(tmp_path)
    settings = settings_of(made.files("replica/1" if module == "node" else "controller/c"))
    (tmp_path / "issuers").write_text("[{alias: a}]")
    settings |= {"data_dir": str(tmp_path / "data"), "token_issuers": str(tmp_path / "issuers")}

    ended = _start(module, settings | (_REPLICA if module == "node" else {}))

    assert ended.returncode == 2, ended.stderr
    assert [line.partition(": ")[2] for line in ended.stderr.splitlines() if line.startswith("strandline: ")] == [
        f"token_issuers {tmp_path / 'issuers'}: 0.issuer: Field required; list entries with alias, issuer, audience, "
        "jwks and, if needed, jwks_ca and algorithms"
    ]
    assert "Traceback" not in ended.stderr
    assert module == "controller" or not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "token_issuers needs tls_cert, tls_key and tls_ca: "),
        ({"tls_cert": "a", "tls_key": "b", "tls_ca": "c", "grpc_transport": "grpcio"}, "needs grpc_transport asyncio"),
    ],
)
def test_tokens_need_tls_and_our_transport(tmp_path: Path, more: dict[str, str], said: str) -> None:
    """The settings of a node and of a controller say so."""
    given = {"data_dir": str(tmp_path), "token_issuers": "f", **more}
    for kind, own in ((ReplicaSettings, _REPLICA), (ControllerSettings, {})):
        with pytest.raises(SettingsWrong, match=said):
            load_settings(kind, flags=given | own, variables={})
