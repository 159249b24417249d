"""A controller's etcd: refused in one line if it cannot be used, reached over TLS, shared by two clusters."""

from __future__ import annotations

import asyncio
import shutil
import sys
import uuid
from pathlib import Path

import pytest
from etcd_members import READY_S, client_of, etcdctl, started
from pydantic import ValidationError
from several_controllers import Several, producer_id, settings, several, stop

from strandline.cli.local.certificate_folder import add, begin
from strandline.controller.settings import ControllerSettings, StoreKind
from strandline.controller.several import SeveralProcess
from strandline.controller.tools import backup
from strandline.core.reigns.reign import State
from strandline.etcd.client import Etcd
from strandline.etcd.members import Members
from strandline.etcd.operations import behind
from strandline.metadata.etcd import too_old
from strandline.metadata.store import StoreFailed
from strandline.node.settings import ReplicaSettings
from strandline.rpc.channels import target
from strandline.rpc.permissions import CallerRole, Identity
from strandline.runtime.exit_codes import ExitCode

NOBODY = "127.0.0.1:1"


def _of_etcd(directory: Path, **given: object) -> ControllerSettings:
    fields = {"store": StoreKind.ETCD, "etcd_endpoints": NOBODY, **given}
    return ControllerSettings(data_dir=directory, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"etcd_endpoints": ""}, "names no member"),
        ({"etcd_endpoints": f"{NOBODY},{NOBODY}"}, "twice"),
        ({"reign_lease_s": 1}, "greater than or equal to 2"),
        ({"etcd_endpoints": "nonsense"}, "write host:port"),
        ({"etcd_endpoints": "10.0.0.1:2379"}, "etcd_ca"),
        ({"etcd_cert": "c"}, "go together"),
        ({"etcd_user": "u"}, "etcd_password_file"),
        ({"bind": "0.0.0.0:0", "insecure": True}, "advertise"),
    ],
    ids=["none", "twice", "lease", "no address", "no TLS", "half a certificate", "no password", "every address"],
)
def test_settings_that_do_not_fit_are_named(given: dict[str, object], said: str, tmp_path: Path) -> None:
    """The sentence names the setting and what to give instead."""
    with pytest.raises(ValidationError, match=said):
        _of_etcd(tmp_path, **given)


def test_a_list_that_names_one_controller_twice_is_refused(tmp_path: Path) -> None:
    """A node that is given an address twice has one controller less than its operator believes."""
    with pytest.raises(ValidationError, match="twice"):
        ReplicaSettings(node_id=1, data_dir=tmp_path, controllers="c1:9090,c2:9090,c1:9090")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "refused", "warned"),
    [("3.3.27", True, False), ("3.4.23", False, True), ("3.5.12", False, True), ("3.5.13", False, False),
     ("3.6.0", False, False), ("3.6.0-rc.1", False, False)],
)  # fmt: skip
def test_old_releases_of_etcd_are_refused_or_warned_of(version: str, refused: bool, warned: bool) -> None:
    """Below 3.4 nothing starts; up to the floor there is one warning that names the defects."""
    assert (too_old((version,), floor=False) is not None) is refused
    assert (too_old((version,), floor=True) is not None) is (warned and not refused)


async def test_an_etcd_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    """The process ends by itself with its exit code and one line that names the member and the remedy."""
    command = [
        sys.executable, "-m", "strandline.controller", "--data-dir", str(tmp_path), "--store", "etcd",
        "--etcd-endpoints", NOBODY,
    ]  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    last = said.decode().strip().splitlines()[-1]

    assert process.returncode == ExitCode.STORAGE_FAILED
    assert NOBODY in last
    assert "start etcd, or correct etcd_endpoints" in last


async def test_the_prefix_of_another_cluster_is_refused(members: Members, tmp_path: Path) -> None:
    """A data directory belongs to one cluster; with another prefix its controller refuses to start, and names both."""
    async with several(members, tmp_path, "c1") as cluster:
        await cluster.stop("c1")
    other = settings(members, tmp_path, f"/strandline/{uuid.uuid4().hex}", "c1")

    with pytest.raises(StoreFailed, match="etcd_prefix is of cluster"):
        await SeveralProcess(other, stop=stop).start()


@pytest.mark.skipif(shutil.which("etcdctl") is None, reason="etcdctl is not installed; on Debian: etcd-client")
async def test_credentials_that_are_wrong_or_missing_are_named(tmp_path: Path) -> None:
    """etcd that asks for a password refuses a controller without one or with another one; the right one serves."""
    with started(tmp_path / "etcd", 1) as secured:
        async with client_of(secured.endpoints) as client:
            await client.until_serving(READY_S)
        etcdctl(secured, "user", "add", "root:right")
        etcdctl(secured, "role", "add", "root")
        etcdctl(secured, "user", "grant-role", "root", "root")
        etcdctl(secured, "auth", "enable")
        prefix = f"/strandline/{uuid.uuid4().hex}"
        wrong, right = tmp_path / "wrong", tmp_path / "right"
        wrong.write_text("other\n")
        right.write_text("right\n")
        without = settings(secured, tmp_path, prefix, "c1")
        with pytest.raises(StoreFailed, match="user name is empty"):
            await SeveralProcess(without, stop=stop).start()
        mistaken = settings(secured, tmp_path, prefix, "c1", etcd_user="root", etcd_password_file=str(wrong))
        with pytest.raises(StoreFailed, match="authentication failed"):
            await SeveralProcess(mistaken, stop=stop).start()
        good = SeveralProcess(
            settings(secured, tmp_path, prefix, "c1", etcd_user="root", etcd_password_file=str(right)), stop=stop
        )
        await good.start()
        await good.shut_down()

        assert await asyncio.to_thread((tmp_path / "c1" / "seen-position.json").exists)


# Controllers that speak TLS to etcd, with files of their own (`etcd_ca`, `etcd_cert`, `etcd_key`).


_DAYS = 2


async def test_etcd_that_asks_for_certificates_serves_those_who_show_one(tmp_path: Path) -> None:
    """With the authority and a certificate a controller decides and a command reads; without one neither does."""
    folder = tmp_path / "certs"
    authority = begin(folder, "harbour", _DAYS)
    add(folder, authority, Identity("harbour", CallerRole.CONTROLLER, "etcd"), ("127.0.0.1",), _DAYS)
    add(folder, authority, Identity("harbour", CallerRole.CLIENT, "c1"), (), _DAYS)
    (home,) = {path.parent for path in folder.glob("*etcd*/tls.crt")}
    (own,) = {path.parent for path in folder.glob("*c1*/tls.crt")}
    arguments = (
        "--cert-file", str(home / "tls.crt"), "--key-file", str(home / "tls.key"),
        "--trusted-ca-file", str(home / "ca.crt"), "--client-cert-auth",
    )  # fmt: skip
    with started(tmp_path / "etcd", 1, arguments=arguments, scheme="https") as members:
        cluster = Several(members, tmp_path)
        files = {"etcd_cert": str(own / "tls.crt"), "etcd_key": str(own / "tls.key")}
        await cluster.start("c1", etcd_ca=str(own / "ca.crt"), **files)
        try:
            active = await cluster.active()
            given = await producer_id(active)
        finally:
            await cluster.stop("c1")
        with pytest.raises(StoreFailed, match="etcd_endpoints"):
            await cluster.start("c2", etcd_ca=str(own / "ca.crt"))
        words = [
            "--etcd-endpoints", target(members.endpoints[0]), "--etcd-prefix", cluster.prefix,
            "--to", str(tmp_path / "backup"), "--etcd-ca", str(own / "ca.crt"),
        ]  # fmt: skip
        shown = ["--etcd-cert", files["etcd_cert"], "--etcd-key", files["etcd_key"]]
        copied = [await asyncio.to_thread(backup.main, [*words, *more]) for more in ([], shown)]

        assert given >= 0
        assert copied == [ExitCode.FAILED, ExitCode.CLEAN]


# Two clusters on one etcd do not see each other, even where the prefix of one begins like that of the other.


async def _values(etcd: Etcd, group: Several) -> dict[bytes, bytes]:
    """All that is kept of a cluster but what its controllers renew."""
    begin = f"{group.prefix}/".encode()
    found = await etcd.page(begin, behind(begin), 0, 1_000)
    return {kv.key: kv.value for kv in found if b"/controllers/" not in kv.key}


async def test_two_clusters_on_one_etcd_do_not_see_each_other(members: Members, etcd: Etcd, tmp_path: Path) -> None:
    """Each has its id, its key and its log; the end of one, and the loss of its store, change nothing in the other."""
    async with several(members, tmp_path / "one", "c1") as one:
        other = Several(members, tmp_path / "other")
        other.prefix = f"{one.prefix}-2"
        try:
            await other.start("c1")
            active = await other.active()
            ids = {(await one.active()).cluster_id, active.cluster_id}
            given = [await producer_id(await one.active()), await producer_id(active)]
            before = await _values(etcd, other)
            await producer_id(await one.active())
            await one.stop("c1")
            await one.lose_store()
            left = await _values(etcd, one)
            after = await _values(etcd, other)
            state = active.reigning.core.state
        finally:
            for name in list(other.running):
                await other.stop(name)

    assert (len(ids), given) == (2, [0, 0])
    assert (left, after, state) == ({}, before, State.ACTIVE)
