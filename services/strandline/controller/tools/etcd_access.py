"""How a process reaches etcd: its members, what it shows them, and below which keys the cluster is.

Invariant: files that cannot be used are refused before anything is sent; files that changed are used by the next
connection that is opened.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from strandline.core.messages import Endpoint
from strandline.etcd.client import Etcd, User
from strandline.metadata.etcd import EtcdStore
from strandline.rpc.channels import parse_endpoint

DEFAULT_PREFIX = "/strandline/default"

_FILES = {
    "etcd-ca": "certificates of the authority that signed etcd's, PEM; empty: etcd is reached without TLS",
    "etcd-cert": "certificate shown to etcd",
    "etcd-key": "its key",
    "etcd-user": "name at etcd, where etcd asks for a password",
    "etcd-password-file": "file with the password",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """One cluster's keys in etcd, and what is needed to read and write them."""

    members: tuple[Endpoint, ...]
    prefix: str = DEFAULT_PREFIX
    ca: str = ""
    cert: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""

    def client(self) -> Etcd:
        """A client of these members.

        Raises:
            ValueError: a file cannot be read.
        """
        user = None
        if self.user:
            try:
                password = Path(self.password_file).read_text(encoding="utf-8").rstrip("\n")
            except OSError as error:
                raise ValueError(f"etcd_password_file cannot be read: {error}") from error
            user = User(self.user, password)
        if not self.ca:
            return Etcd(self.members, user=user)
        # Read now, so that files that cannot be used are refused at the start.
        self._credentials()
        return Etcd(self.members, credentials=self._credentials, user=user)

    def store(self) -> EtcdStore:
        """The store that is kept there; raises as `client`."""
        return EtcdStore(self.client(), self.prefix)

    def _credentials(self) -> grpc.ChannelCredentials:
        try:
            ca = Path(self.ca).read_bytes()
            key = Path(self.key).read_bytes() if self.key else None
            cert = Path(self.cert).read_bytes() if self.cert else None
        except OSError as error:
            raise ValueError(f"etcd_ca, etcd_cert or etcd_key cannot be read: {error}") from error
        return grpc.ssl_channel_credentials(ca, key, cert)


def read_members(text: str) -> tuple[Endpoint, ...]:
    """The members of etcd that a list with commas names.

    Raises:
        ValueError: an entry is no address.
    """
    return tuple(parse_endpoint(entry.strip()) for entry in text.split(",") if entry.strip())


def add_files(parser: argparse.ArgumentParser) -> None:
    """The options that say what etcd is shown; the controller's own variables are their defaults."""
    for name, description in _FILES.items():
        variable = f"STRANDLINE_{name.upper().replace('-', '_')}"
        parser.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=description)


def access_of(given: argparse.Namespace, members: Sequence[Endpoint], prefix: str) -> EtcdAccess:
    """What a command that has `add_files` was given."""
    return EtcdAccess(
        members=tuple(members),
        prefix=prefix,
        ca=given.etcd_ca,
        cert=given.etcd_cert,
        key=given.etcd_key,
        user=given.etcd_user,
        password_file=given.etcd_password_file,
    )
