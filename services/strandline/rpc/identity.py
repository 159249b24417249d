"""Who a certificate names: the one URI ``strandline://<cluster>/<role>/<id>`` among its alternative names.

Invariant: an identity is read whole or not at all; a certificate with none or with two of them names no identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

SCHEME = "strandline://"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class CallerRole(StrEnum):
    """What a certificate is for."""

    REPLICA = "replica"
    """A data node; the id is its node id."""
    CONTROLLER = "controller"
    CLIENT = "client"
    """Produces, consumes and looks."""
    ADMIN = "admin"
    """Whatever a client may, and changes topics, leaders and nodes."""


class NoIdentity(ValueError):
    """A certificate or a text names no identity of ours; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a certificate names."""

    cluster: str
    role: CallerRole
    name: str
    node_id: int | None = field(init=False, repr=False, compare=False)
    """The node's id; None if the identity is no replica's. Kept, because every replica's fetch is compared with it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.cluster) or not _NAME.fullmatch(self.name):
            raise NoIdentity(f"'{self.uri}' has a cluster or an id that is not 1 to 128 of [A-Za-z0-9._-]")
        if self.role is CallerRole.REPLICA and not (self.name.isascii() and self.name.isdecimal()):
            raise NoIdentity(f"'{self.uri}' must end in a node id, a number")
        object.__setattr__(self, "node_id", int(self.name) if self.role is CallerRole.REPLICA else None)

    @property
    def uri(self) -> str:
        """As it is written in a certificate."""
        return f"{SCHEME}{self.cluster}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


def parse_identity(uri: str) -> Identity:
    """``strandline://<cluster>/<role>/<id>`` as an identity.

    Raises:
        NoIdentity: with a sentence that quotes the text.
    """
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or len(parts) != 3 or parts[1] not in set(CallerRole):
        roles = ", ".join(CallerRole)
        raise NoIdentity(f"'{uri}' is not {SCHEME}<cluster>/<role>/<id> with a role of {roles}")
    return Identity(parts[0], CallerRole(parts[1]), parts[2])


def only_identity(uris: Iterable[str]) -> Identity:
    """The identity among a certificate's URIs.

    Raises:
        NoIdentity: there is none, or more than one.
    """
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    if len(ours) != 1:
        raise NoIdentity(f"the certificate has {len(ours)} URIs of {SCHEME}<cluster>/<role>/<id>; it needs exactly one")
    return parse_identity(ours[0])


def identity_of_peer(uris: Iterable[bytes]) -> Identity | None:
    """The identity that a verified peer's URIs name; None if they name none."""
    try:
        return only_identity(uri.decode("utf-8", "replace") for uri in uris)
    except NoIdentity:
        return None
