"""How a process reaches etcd: the members, the credentials, and the prefix of the cluster's keys.

Invariant: unusable files are refused before anything is sent; changed files are used by the next connection.
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
    """One cluster's keys in etcd, with the addresses and credentials to access them."""

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
        # Read now, so that unusable files are refused at the start.
        self._credentials()
        return Etcd(self.members, credentials=self._credentials, user=user)

    def store(self) -> EtcdStore:
        """The store under these keys; raises as `client`."""
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
    """The members of etcd in a list with commas.

    Raises:
        ValueError: an entry is not an address.
    """
    return tuple(parse_endpoint(entry.strip()) for entry in text.split(",") if entry.strip())


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options for etcd's credentials; their defaults are the controller's environment variables."""
    for name, description in _FILES.items():
        variable = f"STRANDLINE_{name.upper().replace('-', '_')}"
        parser.add_argument(f"--{name}", default=os.environ.get(variable, ""), help=description)


def access_of(given: argparse.Namespace, members: Sequence[Endpoint], prefix: str) -> EtcdAccess:
    """The access that the options of `add_files` describe."""
    return EtcdAccess(
        members=tuple(members),
        prefix=prefix,
        ca=given.etcd_ca,
        cert=given.etcd_cert,
        key=given.etcd_key,
        user=given.etcd_user,
        password_file=given.etcd_password_file,
    )
