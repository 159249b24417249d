"""Certificates of a cluster for tests: valid ones, and ones that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from strandline.cli.local.authority import Authority, issue, new_authority
from strandline.rpc.permissions import parse_identity
from strandline.rpc.tls import Tls, TlsFiles

CLUSTER = "c1"
HOSTS = ("localhost", "127.0.0.1")


@dataclass(slots=True)
class Certificates:
    """Writes certificates of one authority into a folder."""

    directory: Path
    authority: Authority

    @classmethod
    def at(cls, directory: Path, cluster: str = CLUSTER) -> Certificates:
        """With a new authority."""
        return cls(directory, new_authority(cluster, 1))

    def files(
        self,
        who: str,
        *,
        cluster: str = CLUSTER,
        hosts: Sequence[str] = HOSTS,
        days: int = 1,
        now: datetime | None = None,
        signed_by: Authority | None = None,
        believes: bytes | None = None,
    ) -> TlsFiles:
        """A certificate for ``role/id``; written again by another call. ``signed_by`` another authority: foreign."""
        identity = parse_identity(f"strandline://{cluster}/{who}")
        issued = issue(signed_by or self.authority, identity, hosts, days, now=now or datetime.now(UTC))
        folder = self.directory / who.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        found = TlsFiles(cert=folder / "tls.crt", key=folder / "tls.key", ca=folder / "ca.crt")
        for path, content in zip(found.all, (issued.cert, issued.key, believes or self.authority.pem), strict=True):
            path.write_bytes(content)
        return found

    def tls(self, who: str, *, look_every_s: float = 0.0, **given: object) -> Tls:
        """The same, loaded; its files are checked at every use."""
        return Tls(self.files(who, **given), look_every_s=look_every_s)  # type: ignore[arg-type]  # handed on


def settings_of(files: TlsFiles) -> dict[str, str]:
    """The same as a service's settings."""
    return {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}
