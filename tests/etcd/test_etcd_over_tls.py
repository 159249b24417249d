"""Controllers that speak TLS to etcd, with files of their own (`etcd_ca`, `etcd_cert`, `etcd_key`)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from etcd_members import READY_S, started
from several_controllers import Several, stub_of

from strandline.cli.local.certificate_folder import add, begin
from strandline.controller.tools import backup
from strandline.metadata.store import StoreFailed
from strandline.rpc.channels import target
from strandline.rpc.permissions import CallerRole, Identity
from strandline.runtime.exit_codes import ExitCode
from strandline.v1 import controller_service_pb2 as pb

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
            async with stub_of(active) as stub:
                given = await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=READY_S)
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

        assert given.producer_id >= 0
        assert copied == [ExitCode.FAILED, ExitCode.CLEAN]
