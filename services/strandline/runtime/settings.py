"""Reads a service's settings: from flags, then `STRANDLINE_...` variables, then a file, then defaults.

Invariant: settings are read once, at the start; afterwards they are frozen values. Each value has its origin recorded,
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
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from strandline.core.log.truncation import historic_fault
from strandline.core.types import Rules, Truncation

# ---- variables
# The known `STRANDLINE_...` variables, so that a misspelled one is refused and not ignored.
#
# Invariant: every service knows the names of all services and commands, because processes share environments; variables
# that Kubernetes and container links set are no settings.

PREFIX = "STRANDLINE_"
SERVICES = "strandline.settings"
"""The entry points that name the settings class of each service."""

OF_COMMANDS = frozenset(
    PREFIX + name
    for name in (
        # Of commands with --bootstrap and of the analytics.
        "BOOTSTRAP PROFILE TOKEN_FILE GRPC_TRANSPORT ANALYTICS_MEMORY RULES_OF "
        # Of the images and of the tests.
        "VERSION CLOCK SCHEDULES KUBERNETES_CACHE KUBERNETES_STATE"
    ).split()
)
"""Names used by parts of the project that have no settings class."""

_LINK = re.compile(
    rf"^{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$"
)


def unknown_variable(environment: Iterable[str], own: Iterable[str]) -> str | None:
    """A message about the first `STRANDLINE_...` variable that belongs to no setting; None if there is none.

    ``own`` are the field names of the calling service's settings.
    """
    known = OF_COMMANDS | {PREFIX + name.upper() for name in own}
    found = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    if found:  # The other services' classes are imported only if one of their names may be meant.
        known |= {PREFIX + name.upper() for kind in _services() for name in kind.own_names()}
    for name in found:
        if name in known or _LINK.match(name):
            continue
        field = name.removeprefix(PREFIX).lower()
        if any(field in kind.tuned_names() for kind in _services()):
            return f"variable {name} is not a setting; give {PREFIX}TUNE={field}=VALUE"
        words = [word.removeprefix(PREFIX) for word in sorted(known)]
        near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1)
        meant = f"; did you mean {PREFIX}{near[0]}?" if near else "; `strandline settings` lists those there are"
        return f"variable {name} is not a setting{meant}"
    return None


def _services() -> list[type[ServiceSettings]]:
    return [point.load() for point in entry_points(group=SERVICES)]


class Origin(StrEnum):
    """The source of a value, strongest first."""

    FLAG = "flag"
    VARIABLE = "variable"
    FILE = "file"
    DEFAULT = "default"


class SettingsWrong(Exception):
    """A setting cannot be used; the message names it and says what is allowed."""


class SettingMissing(SettingsWrong):
    """No source gives a required setting."""


def _served(truncation: Truncation) -> Truncation:
    if fault := historic_fault(Rules(truncation=truncation)):
        raise ValueError(fault)
    return truncation


ServedTruncation = Annotated[Truncation, AfterValidator(_served)]
"""The truncation rule of a real server, which refuses those that Kafka has abandoned."""


def setting(default: Any, meaning: str, advice: str, **limits: Any) -> Any:
    """A setting: its default (... if required), its meaning, advice on when to change it, and pydantic's limits."""
    return Field(default, description=meaning, json_schema_extra={"advice": advice}, **limits)


def tuned(default: Any, meaning: str, **limits: Any) -> Any:
    """A setting whose default suits nearly every cluster: no page lists it, and only ``tune`` sets it."""
    return Field(default, description=meaning, json_schema_extra={"tuned": True}, **limits)


def shared(meaning: str, advice: str = "", **limits: Any) -> Any:
    """A setting that several services share, for `Annotated`; each gives its default. Without advice it is tuned."""
    return Field(description=meaning, json_schema_extra={"advice": advice} if advice else {"tuned": True}, **limits)


class ServiceSettings(BaseModel):
    """Base of every service's settings. Lists are written with commas in flags and variables."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    tune: str = setting(
        "",
        "NAME=VALUE with commas between: values that `strandline settings` lists as `tune.NAME`",
        "Where an alert's page says so, and in tests.",
    )
    grpc_transport: Literal["asyncio", "grpcio"] = setting(
        "asyncio",
        "what carries gRPC: asyncio itself, or grpcio's C core",
        "To switch the transport of our own off: see TRANSPORT.md.",
    )

    @classmethod
    def tuned_names(cls) -> frozenset[str]:
        """Fields that ``tune`` sets."""
        return frozenset(name for name, field in cls.model_fields.items() if extra(field).get("tuned"))

    @classmethod
    def own_names(cls) -> list[str]:
        """Fields that can be set by a flag, a variable or a line of a file, in the order of the class."""
        return [name for name in cls.model_fields if name not in cls.tuned_names()]


def wrong_transport(environment: Mapping[str, str]) -> str | None:
    """A message if the variable of ``grpc_transport``, which clients obey too, names no transport; else None."""
    variable = PREFIX + "GRPC_TRANSPORT"
    names = get_args(ServiceSettings.model_fields["grpc_transport"].annotation)
    named = environment.get(variable) or names[0]
    return None if named in names else f"variable {variable}={named} must be {' or '.join(names)}"


def extra(field: FieldInfo) -> Mapping[str, Any]:
    """What `setting` and `tuned` record of a field in addition to its meaning."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


_Settings = TypeVar("_Settings", bound=ServiceSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[_Settings]):
    """Settings and, by field name, the origin of each."""

    settings: _Settings
    origins: Mapping[str, Origin]


def load_settings(
    kind: type[_Settings],
    *,
    flags: Mapping[str, object],
    variables: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded[_Settings]:
    """Merge the sources and validate the result.

    Raises:
        SettingMissing: a required setting is missing; the message names the first one.
        SettingsWrong: a setting is wrong, a variable unknown or a file unreadable; the message names the first one.
    """
    environment = os.environ if variables is None else variables
    known = kind.own_names()
    if unknown := unknown_variable(environment, known):
        raise SettingsWrong(unknown)
    sources: dict[Origin, Mapping[str, object]] = {
        Origin.FILE: _not_tuned(kind, _read_file(file)) if file is not None else {},
        Origin.VARIABLE: {
            name: environment[PREFIX + name.upper()] for name in known if PREFIX + name.upper() in environment
        },
        Origin.FLAG: {name: value for name, value in flags.items() if value is not None},
    }
    values: dict[str, object] = {}
    origins = dict.fromkeys(kind.model_fields, Origin.DEFAULT)
    for origin, given in sources.items():
        found = {**_tuned(kind, given.get("tune", ""), origin), **given}
        values.update(found)
        origins.update({name: origin for name in found if name in origins})
    try:
        return Loaded(settings=kind.model_validate(values), origins=origins)
    except ValidationError as error:
        wrong = SettingMissing if error.errors()[0]["type"] == "missing" else SettingsWrong
        raise wrong(_sentence(error, origins)) from error


def _not_tuned(kind: type[ServiceSettings], found: Mapping[str, object]) -> Mapping[str, object]:
    for name in sorted(kind.tuned_names() & found.keys()):
        raise SettingsWrong(f"setting {name} (from {Origin.FILE}): write it as 'tune: {name}=VALUE'")
    return found


def _tuned(kind: type[ServiceSettings], given: object, origin: Origin) -> dict[str, str]:
    """The values in ``tune``. In a variable, names of other services are ignored, because processes share variables."""
    found = {}
    for part in split_commas(str(given)):
        name, _, value = (word.strip() for word in part.partition("="))
        if name in kind.tuned_names() and value:
            found[name] = value
        elif origin is not Origin.VARIABLE or not any(name in other.tuned_names() for other in _services()):
            listed = ", ".join(sorted(kind.tuned_names()))
            raise SettingsWrong(f"setting tune (from {origin}): '{part}' is not NAME=VALUE with one of {listed}")
    return found


_NO_COMMANDS: Mapping[str, str] = {}


def parse_flags(
    kind: type[ServiceSettings], program: str, arguments: Sequence[str], commands: Mapping[str, str] = _NO_COMMANDS
) -> tuple[dict[str, str], Path | None]:
    """Parse ``--node-id 1 --config file.yaml`` into flags by field name and the settings file; exit 2 on wrong usage.

    ``commands`` are listed in the help with their meanings; one may be given instead. A misspelled one gets a hint.
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
        # A bare --insecure is --insecure true; --tune may come several times.
        form: dict[str, Any] = {"nargs": "?", "const": "true"} if field.annotation is bool else {}
        if name == "tune":
            form = {"action": "append"}
        hidden = name in kind.tuned_names()
        help_text = argparse.SUPPRESS if hidden else (field.description or "").replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="VALUE", help=help_text, **form)
    found = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    for name in sorted(kind.tuned_names() & found.keys()):
        parser.exit(2, f"{program}: --{name.replace('_', '-')} is not a flag; give --tune {name}=VALUE\n")
    file = found.pop("config", None)
    return found | ({"tune": ",".join(found["tune"])} if "tune" in found else {}), file


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


def split_commas(value: Any) -> Any:
    """``"a, b"`` as ``("a", "b")``; a list stays as it is."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


# ---- guarding
# The settings of ports that all services share: TLS, the exceptions for plaintext, and the checks.
#
# Invariant: the three TLS files are given together or not at all; only loopback is served without TLS, unless the
# setting ``insecure`` allows more. The ports of health and metrics are exempt, because they reveal no secrets.

TlsCert = Annotated[
    str,
    shared(
        "certificate of this process, PEM, read again when it changes; empty: off",
        "As soon as anything beyond this machine can reach the port.",
    ),
]
TlsKey = Annotated[str, shared("the certificate's private key, PEM", "With `tls_cert`.")]
TlsCa = Annotated[
    str, shared("certificates of the authority that others' certificates must be signed by", "With `tls_cert`.")
]
Insecure = Annotated[
    bool,
    shared(
        "serve addresses beyond loopback without TLS",
        "Only on a network that untrusted hosts cannot reach, such as between containers of one test.",
    ),
]
PlainAddress = Annotated[str, Field(pattern=r"^(\S+:\d{1,5})?$")]
HealthBind = Annotated[
    PlainAddress,
    shared(
        "address of grpc.health.v1 without TLS; empty: none",
        "Where something probes: Kubernetes, a load balancer, a supervisor.",
    ),
]
MetricsBind = Annotated[
    PlainAddress, shared("address of Prometheus metrics by HTTP; empty: none", "Where Prometheus scrapes.")
]
MetricsTls = Annotated[
    bool,
    shared(
        "serve metrics by HTTPS with tls_cert, to callers with a certificate of tls_ca",
        "Where others can reach the port; Prometheus then needs a `tls_config`.",
    ),
]


class Authorization(StrEnum):
    """How callers are authorized."""

    OFF = "off"
    """Only by the role in their certificates, as the table of permissions says."""
    ACL = "acl"
    """Clients also need a rule for each access; rules may grant them what is otherwise for administrators."""


AuthorizationSetting = Annotated[
    Authorization,
    shared(
        "who may do what: off, each role what its table says; acl, clients what rules allow (`strandline acl`)",
        "Once there are rules; the same in every process of the cluster, which needs TLS.",
    ),
]
TokenIssuers = Annotated[
    str,
    shared(
        "file of the issuers whose tokens clients may show instead of a certificate, YAML; empty: no tokens",
        "For clients that have an identity at an OpenID provider and no certificate: see SECURITY.md.",
    ),
]
Reflection = Annotated[
    bool, shared("serve gRPC reflection", "Off, if callers must not be able to list services and messages.")
]

PingEveryMs = Annotated[int, shared("keepalive pings on internal connections", ge=100)]
PingTimeoutMs = Annotated[int, shared("unanswered ping after which a connection is closed", ge=100)]
WatchMergeMs = Annotated[
    int, shared("window in which changes of metadata become one message to a subscriber", ge=0, le=1_000)
]
QuotaBurstS = Annotated[
    int,
    shared(
        "for how many seconds a client that used nothing may exceed its quota, as far as its rate for that time goes",
        ge=1,
        le=3_600,
    ),
]


class TlsSettings(Protocol):
    """The three TLS files, which every kind of service has, and whether its metrics use them."""

    @property
    def metrics_tls(self) -> bool:
        """Whether the metrics port speaks HTTPS."""
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
    """The TLS files, and whether they may be missing."""

    @property
    def insecure(self) -> bool:
        """Whether addresses beyond loopback may be served without TLS."""
        ...


def check_guards(settings: GuardedSettings, **addresses: str) -> None:
    """Refuse some TLS files without the others, and an address beyond loopback without TLS.

    ``addresses`` are the addresses of ports by the name of their setting; an empty one is not served.

    Raises:
        ValueError: the message names the setting.
    """
    check_tls(settings)
    if settings.tls_cert or settings.insecure:
        return
    for name, address in addresses.items():
        if address and not is_loopback(address.rpartition(":")[0]):
            raise ValueError(
                f"{name} {address} is not loopback and TLS is off; give tls_cert, tls_key and tls_ca, or insecure "
                f"if everyone who can reach the address may read, write and administer"
            )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is reachable from this machine only; names other than localhost are not resolved: False."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_tls(settings: TlsSettings) -> None:
    """Refuse some TLS files without the others, and settings that need TLS without it.

    Raises:
        ValueError: the message names what is missing.
    """
    given = {name: getattr(settings, name) for name in ("tls_cert", "tls_key", "tls_ca")}
    absent = [name for name, value in given.items() if not value]
    if absent and len(absent) < len(given):
        raise ValueError(f"{' and '.join(absent)} must be given too; TLS needs tls_cert, tls_key and tls_ca together")
    if settings.metrics_tls and absent:
        raise ValueError("metrics_tls needs tls_cert, tls_key and tls_ca; give them, or set metrics_tls to false")
    if absent and getattr(settings, "authorization", Authorization.OFF) is Authorization.ACL:
        raise ValueError(
            "authorization acl needs tls_cert, tls_key and tls_ca: rules are about who a certificate names"
        )
    if getattr(settings, "token_issuers", ""):
        if absent:
            raise ValueError(
                "token_issuers needs tls_cert, tls_key and tls_ca: without TLS a token can be read on its way"
            )
        if getattr(settings, "grpc_transport", "") == "grpcio":
            raise ValueError(
                "token_issuers needs grpc_transport asyncio: a port of grpcio requires a certificate of every caller, "
                "or asks none for one"
            )
