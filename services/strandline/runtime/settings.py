"""Where a service's settings come from: flags, then `STRANDLINE_...` variables, then a file, then defaults.

Invariant: settings are read once, at the edge; everywhere else they are frozen values. Every value knows its origin,
so that an operator need not guess why a service behaves as it does.
"""

from __future__ import annotations

import argparse
import difflib
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from strandline.core.log.truncation import historic_fault
from strandline.core.types import Rules, Truncation

# ---- variables
# Which `STRANDLINE_...` variables there are, so that one that is misspelled is refused and not ignored.
#
# Invariant: a name of any service or command is known to every service, because processes share environments; what
# Kubernetes and container links put there by themselves is no setting of anybody.

PREFIX = "STRANDLINE_"

OF_OTHERS = frozenset(
    PREFIX + name
    for name in (
        # Of commands with --bootstrap and of the analytics.
        "BOOTSTRAP PROFILE ANALYTICS_MEMORY "
        # Of data nodes and the controller.
        "ADVERTISE AUTO_LEADER_REBALANCE_ENABLE BIND CONTROLLERS CONTROLLER_ID DATA_DIR DEFAULT_PARTITIONS "
        "DEFAULT_REPLICATION_FACTOR DURABILITY ETCD_CA ETCD_CERT ETCD_ENDPOINTS ETCD_KEY ETCD_PASSWORD_FILE "
        "ETCD_PREFIX ETCD_QUOTA_BYTES ETCD_USER EXPORT_DIR EXPORT_FILE_BYTES EXPORT_FORMAT EXPORT_RING_EVENTS "
        "EXPORT_ROLL_S EXPORT_URI EXPORT_WAITING_BYTES FETCH_HW FSYNC_THREADS GROUP_HEARTBEAT_INTERVAL_MS "
        "GROUP_MAX_SESSION_TIMEOUT_MS GROUP_MAX_SIZE GROUP_MIN_SESSION_TIMEOUT_MS GROUP_SESSION_TIMEOUT_MS "
        "GROUP_STATE_PARTITIONS HEALTH_BIND HEARTBEAT_INTERVAL_MS HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS INSECURE "
        "INTERNAL_ADVERTISE INTERNAL_BIND INTERNAL_REPLICATION_FACTOR ISR_JOIN LEADER_IMBALANCE_CHECK_INTERVAL_MS "
        "LOG_FORMAT LOG_LEVEL LOG_SNAPSHOT_EVERY LOW_SPACE_BYTES METRICS_BIND OFFSETS_RETENTION_MS "
        "METRICS_PER_PARTITION METRICS_TLS NODE_ID NODE_ID_FROM_HOSTNAME PART_BYTES PING_EVERY_MS PING_TIMEOUT_MS "
        "PROBE_DEADLINE_MS PURGATORY_MAX_BYTES PURGATORY_MAX_ENTRIES RACK REFLECTION REIGN_LEASE_S "
        "REPLICA_FETCH_MAX_BYTES REPLICA_FETCH_WAIT_MAX_MS REPLICA_LAG_TIME_MAX_MS RETENTION_CHECK_INTERVAL_MS ROLES "
        "SAMPLE_INTERVAL_MS SAMPLE_MAX_INTERVAL_MS SEGMENT_BYTES SESSION_TIMEOUT_MS SHUTDOWN_DEADLINE_MS STORE "
        "TICK_MS TLS_CA TLS_CERT TLS_KEY TRANSACTIONAL_ID_EXPIRATION_MS TRANSACTION_MAX_TIMEOUT_MS "
        "TRANSACTION_STATE_PARTITIONS TRUNCATION UNCLEAN_RECOVERY_TIMEOUT_MS WATCH_BACKLOG WATCH_MERGE_MS WORKERS "
        # Of the console.
        "ALLOW_CHANGES HOSTS HTTPS_CERT HTTPS_KEY LOOK_DEADLINE_MS LOOK_INTERVAL_MS MAX_BROWSERS PARTITIONS_FOLLOWED "
        "METADATA_STALE_MS REPORT TRANSITIONS_KEPT "
        # Of the images and of the tests.
        "VERSION CLOCK SCHEDULES KUBERNETES_CACHE KUBERNETES_STATE"
    ).split()
)
"""Every name that means something to some part of the project; a test compares it with the settings themselves."""

_LINK = re.compile(
    rf"^{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$"
)


def unknown_variable(environment: Iterable[str], own: Iterable[str]) -> str | None:
    """One sentence about the first `STRANDLINE_...` variable that no setting has; None if there is none.

    ``own`` are the names of the asking service's settings, as fields.
    """
    known = OF_OTHERS | {PREFIX + name.upper() for name in own}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _LINK.match(name):
            words = [word.removeprefix(PREFIX) for word in sorted(known)]
            near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1)
            meant = f"; did you mean {PREFIX}{near[0]}?" if near else "; `strandline settings` lists those there are"
            return f"variable {name} is no setting{meant}"
    return None


ENV_PREFIX = "STRANDLINE_"


class Origin(StrEnum):
    """Where a value came from, strongest first."""

    FLAG = "flag"
    VARIABLE = "variable"
    FILE = "file"
    DEFAULT = "default"


class SettingsWrong(Exception):
    """A setting cannot be used; the sentence names it and says what is allowed."""


class SettingMissing(SettingsWrong):
    """No source gives a required setting."""


def _served(truncation: Truncation) -> Truncation:
    if fault := historic_fault(Rules(truncation=truncation)):
        raise ValueError(fault)
    return truncation


ServedTruncation = Annotated[Truncation, AfterValidator(_served)]
"""How a follower finds its cut, in a server: a rule that Kafka abandoned is refused."""


class ServiceSettings(BaseModel):
    """Base of every service's settings. Lists are written with commas in flags and variables."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


_Settings = TypeVar("_Settings", bound=ServiceSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[_Settings]):
    """Settings and, by field name, where each came from."""

    settings: _Settings
    origins: Mapping[str, Origin]


def load_settings(
    kind: type[_Settings],
    *,
    flags: Mapping[str, object],
    variables: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded[_Settings]:
    """Merge the sources.

    Raises:
        SettingMissing: naming the first required setting that nobody gave.
        SettingsWrong: naming the first wrong setting or unknown variable, or an unreadable file.
    """
    environment = os.environ if variables is None else variables
    known = kind.model_fields
    if unknown := unknown_variable(environment, known):
        raise SettingsWrong(unknown)
    sources: dict[Origin, Mapping[str, object]] = {
        Origin.FILE: _read_file(file) if file is not None else {},
        Origin.VARIABLE: {
            name: environment[ENV_PREFIX + name.upper()] for name in known if ENV_PREFIX + name.upper() in environment
        },
        Origin.FLAG: {name: value for name, value in flags.items() if value is not None},
    }
    values: dict[str, object] = {}
    origins = dict.fromkeys(known, Origin.DEFAULT)
    for origin, found in sources.items():
        values.update(found)
        origins.update({name: origin for name in found if name in known})
    try:
        return Loaded(settings=kind.model_validate(values), origins=origins)
    except ValidationError as error:
        wrong = SettingMissing if error.errors()[0]["type"] == "missing" else SettingsWrong
        raise wrong(_sentence(error, origins)) from error


_NO_COMMANDS: Mapping[str, str] = {}


def parse_flags(
    kind: type[ServiceSettings], program: str, arguments: Sequence[str], commands: Mapping[str, str] = _NO_COMMANDS
) -> tuple[dict[str, str], Path | None]:
    """``--node-id 1 --config file.yaml`` as flags by field name, and the settings file; exits with 2 on wrong usage.

    ``commands``: what may come instead, with what each does; the help lists them, and one that is misspelled is named.
    """
    listed = "\n".join(f"  {name:<12}{text}" for name, text in commands.items())
    parser = argparse.ArgumentParser(
        prog=program,
        description=(kind.__doc__ or "").partition("\n")[0],
        epilog=f"commands instead of settings:\n{listed}" if listed else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if commands and arguments and not arguments[0].startswith("-"):
        near = difflib.get_close_matches(arguments[0], commands, n=1)
        meant = f"did you mean '{near[0]}'? " if near else ""
        parser.exit(2, f"{program}: no command is named '{arguments[0]}'; {meant}There are: {', '.join(commands)}\n")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file of settings")
    for name, field in kind.model_fields.items():
        # A bare --insecure is --insecure true.
        bare: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        help_text = (field.description or "").replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=help_text, **bare)
    found = vars(parser.parse_args(arguments))
    file = found.pop("config")
    return {name: value for name, value in found.items() if value is not None}, file


def _read_file(path: Path) -> Mapping[str, object]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsWrong(f"settings file {path} cannot be read: {error}") from error
    except RecursionError:
        raise SettingsWrong(f"settings file {path} cannot be read: it is nested too deeply") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsWrong(f"settings file {path} must hold 'name: value' lines")
    return {str(name).replace("-", "_"): value for name, value in content.items()}


def _sentence(error: ValidationError, origins: Mapping[str, Origin]) -> str:
    first = error.errors()[0]
    name, said = ".".join(str(part) for part in first["loc"]), first["msg"].removeprefix("Value error, ")
    if not name:
        return said
    if first["type"] == "missing":
        return (
            f"setting {name} is missing; give --{name.replace('_', '-')}, {PREFIX}{name.upper()}, or a line of --config"
        )
    origin = origins.get(name)
    return f"setting {name}{f' (from {origin})' if origin else ''}: {said}"


def split_commas(value: object) -> object:
    """``"a, b"`` as ``("a", "b")``; a list stays as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


# ---- guarding
# The settings every service shares about its ports: TLS, the plaintext exceptions, and what is refused.
#
# Invariant: the three files of TLS are given together or not at all; nothing but loopback is served without TLS unless
# the setting ``insecure`` allows it. The ports of health and metrics are exempt: they show nothing secret.

TlsCert = Annotated[str, Field(description="certificate of this process, PEM, read again when it changes; empty: off")]
TlsKey = Annotated[str, Field(description="the certificate's private key, PEM")]
TlsCa = Annotated[str, Field(description="certificates of the authority that others' certificates must be signed by")]
Insecure = Annotated[bool, Field(description="serve addresses beyond loopback without TLS")]
PlainAddress = Annotated[str, Field(pattern=r"^(\S+:\d{1,5})?$")]
HealthBind = Annotated[PlainAddress, Field(description="address of grpc.health.v1 without TLS; empty: none")]
MetricsTls = Annotated[
    bool, Field(description="serve metrics by HTTPS with tls_cert, to callers with a certificate of tls_ca")
]
MetricsBind = Annotated[PlainAddress, Field(description="address of Prometheus metrics by HTTP; empty: none")]


class TlsSettings(Protocol):
    """The three files, as every kind of service has them, and whether its metrics use them."""

    @property
    def metrics_tls(self) -> bool:
        """Whether the port of metrics speaks HTTPS."""
        ...

    @property
    def tls_cert(self) -> str:
        """Path of the certificate, or empty."""
        ...

    @property
    def tls_key(self) -> str:
        """Path of its key, or empty."""
        ...

    @property
    def tls_ca(self) -> str:
        """Path of the authority's certificates, or empty."""
        ...


class GuardedSettings(TlsSettings, Protocol):
    """The files, and whether one may do without."""

    @property
    def insecure(self) -> bool:
        """Whether addresses beyond loopback may be served without TLS."""
        ...


def check_guards(settings: GuardedSettings, **addresses: str) -> None:
    """Refuse a part of TLS without the others, and an address beyond loopback without TLS.

    ``addresses`` are the ports of services by their setting's name; an empty one is not served.

    Raises:
        ValueError: naming the setting.
    """
    check_tls(settings)
    if settings.tls_cert or settings.insecure:
        return
    for name, address in addresses.items():
        if address and not is_loopback(address.rpartition(":")[0]):
            raise ValueError(
                f"{name} {address} is not loopback and TLS is off; give tls_cert, tls_key and tls_ca, or insecure "
                f"where everybody who reaches the address may read, write and administer"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``; names other than localhost are not looked up and do not count."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_tls(settings: TlsSettings) -> None:
    """Refuse a part of TLS without the others, and metrics by HTTPS without TLS.

    Raises:
        ValueError: naming what is absent.
    """
    given = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    absent = [name for name, value in given.items() if not value]
    if absent and len(absent) < len(given):
        raise ValueError(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
    if settings.metrics_tls and absent:
        raise ValueError("metrics_tls needs tls_cert, tls_key and tls_ca; give them, or set metrics_tls to false")
