"""The settings of a producer, with their defaults.

Invariant: a setting that would break order or exactly-once producing is refused when the producer is made.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from strandline.core.types import Acks
from strandline.records.batch import MAX_BATCH_BYTES
from strandline.records.compression import Compression

MAX_IN_FLIGHT = 5
"""Leaders remember this many batches per producer and partition (M61)."""
MAX_TRANSACTIONAL_ID = 255
"""The most characters of a transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How a producer batches, sends and times out."""

    acks: Acks = Acks.ALL
    idempotent: bool = True
    linger_ms: float = 5.0
    batch_bytes: int = 256 << 10
    max_in_flight: int = MAX_IN_FLIGHT
    compression: Compression = Compression.NONE
    request_timeout_ms: int = 30_000
    """How long a leader may wait for replicas before it answers REQUEST_TIMED_OUT."""
    delivery_timeout_ms: int = 120_000
    """How long a record may take from `send` to its end, retries included."""
    max_block_ms: int = 60_000
    """How long `send` may wait for room in the buffer, or for the topic to be known."""
    buffer_bytes: int = 32 << 20
    connect_timeout_ms: int = 2_000
    transactional_id: str | None = None
    """The transactional id that all records belong to; None without transactions."""
    transaction_timeout_ms: int = 60_000
    """The coordinator aborts a transaction that is open for longer."""

    def __post_init__(self) -> None:
        """Raises:
        ValueError: with the setting, the rule and the value.
        """
        if not 1024 <= self.batch_bytes <= MAX_BATCH_BYTES:
            raise ValueError(f"batch_bytes {self.batch_bytes} must be 1024 to {MAX_BATCH_BYTES}")
        # With more under way, a leader could have forgotten the batch of which a retry is a copy (M61).
        if self.max_in_flight < 1 or (self.idempotent and self.max_in_flight > MAX_IN_FLIGHT):
            raise ValueError(f"max_in_flight {self.max_in_flight} must be 1 to {MAX_IN_FLIGHT} when idempotent")
        if self.buffer_bytes < self.batch_bytes:
            raise ValueError(f"buffer_bytes {self.buffer_bytes} must be at least batch_bytes {self.batch_bytes}")
        if self.linger_ms < 0 or min(self.request_timeout_ms, self.delivery_timeout_ms, self.max_block_ms) <= 0:
            raise ValueError("linger_ms must not be negative, and every timeout must be positive")
        if self.transactional_id is not None:
            self._check_transactional(self.transactional_id)

    def _check_transactional(self, transactional_id: str) -> None:
        if not 1 <= len(transactional_id) <= MAX_TRANSACTIONAL_ID:
            raise ValueError(f"transactional_id must have 1 to {MAX_TRANSACTIONAL_ID} characters")
        if self.transaction_timeout_ms <= 0:
            raise ValueError(f"transaction_timeout_ms {self.transaction_timeout_ms} must be positive")
        # Records of a committed transaction must not be lost, which acks=1 does not promise (P7).
        if self.acks is not Acks.ALL or not self.idempotent:
            raise ValueError("a producer with a transactional_id needs acks='all' and idempotent=True")


def parse_acks(acks: Acks | int | str) -> Acks:
    """0, 1, -1 or "all".

    Raises:
        ValueError: it is none of these.
    """
    if acks == "all":
        return Acks.ALL
    try:
        return Acks(int(acks))
    except ValueError:
        raise ValueError(f"acks {acks!r} must be 0, 1, -1 or 'all'") from None


def parse_compression(compression: Compression | str | None) -> Compression:
    """None, "none", "gzip", "snappy", "lz4" or "zstd".

    Raises:
        ValueError: it is none of these.
    """
    if compression is None:
        return Compression.NONE
    if isinstance(compression, Compression):
        return compression
    try:
        return Compression[compression.upper()]
    except KeyError:
        raise ValueError(f"compression {compression!r} must be none, gzip, snappy, lz4 or zstd") from None


# ---- client_id
# Valid client names, which services read as the first word of the user agent.
#
# Invariant: a name is one word, so that services show it in full.

DEFAULT_CLIENT_ID = "strandline"
_ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,249}")


def parse_client_id(client_id: str) -> str:
    """The name, if it is valid (the characters and the length that Kafka allows for names of topics).

    Raises:
        ValueError: it has other characters, none, or more than 249.
    """
    if not _ALLOWED.fullmatch(client_id):
        raise ValueError(f"client_id {client_id!r} must be 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'")
    return client_id


# ---- profile
# Profiles: how to connect to a cluster, under a name, in a TOML file in the user's configuration folder.
#
# Invariant: a profile is read whole or refused with a message that names the file, the field and the remedy; nothing
# here writes files. The folder is `$XDG_CONFIG_HOME/strandline`, by default `~/.config/strandline`.

PROFILE_VARIABLE = "STRANDLINE_PROFILE"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class ProfileWrong(ValueError):
    """There is no such profile, or its file cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One cluster's addresses (host:port) and the paths of its TLS files, all three or `tls_ca` and a token, or
    none."""

    name: str
    bootstrap: tuple[str, ...]
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""
    token_file: str = ""

    @classmethod
    def load(cls, name: str | None = None) -> Self:
        """Read a profile; by default that of STRANDLINE_PROFILE, else the one chosen by `strandline profile use`.

        Raises:
            ProfileWrong: there is none, or its file is wrong.
        """
        wanted = name or os.environ.get(PROFILE_VARIABLE) or profile_in_use()
        if not wanted:
            raise ProfileWrong("no profile is in use; `strandline profile use NAME` chooses one")
        path = profile_path(wanted)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(profile_names()) or "none"
            raise ProfileWrong(
                f"no profile is named {wanted!r} (there are: {known}); `strandline profile create {wanted}` makes it"
            ) from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ProfileWrong(f"{path}: {error}") from None
        try:
            return cls(name=wanted, **_values(document))
        except ValueError as error:
            raise ProfileWrong(f"{path}: {error}") from None

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("bootstrap names no address; write for example bootstrap = ['127.0.0.1:9092']")
        given = [bool(file) for file in (self.tls_cert, self.tls_key, self.tls_ca)]
        if self.token_file and given != [False, False, True]:
            raise ValueError("token_file needs tls_ca, and neither tls_cert nor tls_key")
        if any(given) and not all(given) and not self.token_file:
            raise ValueError("TLS needs tls_cert, tls_key and tls_ca together")


def profiles_folder() -> Path:
    """The folder of the profiles; it need not exist.

    Raises:
        ProfileWrong: neither XDG_CONFIG_HOME nor a home directory is known.
    """
    return _configuration_folder() / "profiles"


def profile_path(name: str) -> Path:
    """The file of a profile; it need not exist.

    Raises:
        ProfileWrong: no profile can have this name.
    """
    if not _NAME.fullmatch(name):
        raise ProfileWrong(f"{name!r} is not a name of a profile; use letters, digits, '_', '-' and '.', at most 64")
    return profiles_folder() / f"{name}.toml"


def profile_names() -> list[str]:
    """The names of all profiles, sorted."""
    try:
        files = [path for path in profiles_folder().iterdir() if path.suffix == ".toml"]
    except (OSError, ProfileWrong):
        return []
    return sorted(path.stem for path in files if _NAME.fullmatch(path.stem))


def choice_path() -> Path:
    """The file with the name of the profile in use, on one line; it need not exist."""
    return _configuration_folder() / "profile"


def profile_in_use() -> str | None:
    """The name chosen by `strandline profile use`; None if there is none."""
    try:
        return choice_path().read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError, ProfileWrong):
        return None


def _configuration_folder() -> Path:
    # A relative path must be ignored (XDG Base Directory Specification).
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    if configured.is_absolute():
        return configured / "strandline"
    try:
        return Path.home() / ".config" / "strandline"
    except RuntimeError:
        raise ProfileWrong("no folder for profiles: set HOME or XDG_CONFIG_HOME") from None


def _values(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file; `bootstrap` is a list or one string with commas."""
    known = [field.name for field in fields(Profile) if field.name != "name"]
    unknown = sorted(document.keys() - set(known))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a field of a profile; known are {', '.join(known)}")
    values = dict(document)
    bootstrap = values.get("bootstrap", [])
    entries = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ValueError("bootstrap is not a list of addresses; write for example bootstrap = ['127.0.0.1:9092']")
    values["bootstrap"] = tuple(entry.strip() for entry in entries if entry.strip())
    wrong = next((name for name in known if name != "bootstrap" and not isinstance(values.get(name, ""), str)), None)
    if wrong is not None:
        raise ValueError(f"{wrong} is not a path; write it in quotes")
    return values
