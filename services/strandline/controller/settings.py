"""The settings of the controller, and the frozen values that the core takes from them.

Invariant: the two rules are given once, at the first start; later a rule that is given must be the stored one.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from strandline.core.control.state import ControllerTimings
from strandline.core.messages import Endpoint
from strandline.core.types import Durability, Rules
from strandline.export.encoding import ExportFormat
from strandline.rpc.channels import WILDCARDS, Keepalive, parse_endpoint
from strandline.runtime import exporting, settings
from strandline.runtime.log_form import LogFormat, LogFormatSetting, LogLevel, LogLevelSetting

Words = Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)]

Address = Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")]


class StoreKind(StrEnum):
    """Where a controller keeps what it decided."""

    SQLITE = "sqlite"
    ETCD = "etcd"


class ControllerSettings(settings.ServiceSettings):
    """Settings of the controller (`strandline controller`)."""

    data_dir: Path = Field(description="directory of the metadata store; one process at a time")
    bind: Address = Field("127.0.0.1:0", description="address for nodes and clients; port 0: the kernel chooses")
    internal_bind: settings.PlainAddress = Field(
        "", description="address nodes are served on; empty: they use bind too"
    )
    tls_cert: settings.TlsCert = ""
    tls_key: settings.TlsKey = ""
    tls_ca: settings.TlsCa = ""
    insecure: settings.Insecure = False
    health_bind: settings.HealthBind = ""
    metrics_bind: settings.MetricsBind = ""
    metrics_tls: settings.MetricsTls = False
    log_format: LogFormatSetting = LogFormat.AUTO
    log_level: LogLevelSetting = LogLevel.INFO
    reflection: bool = Field(True, description="serve gRPC reflection")

    truncation: settings.ServedTruncation | None = Field(
        None, description="first start: how a follower finds its cut: leader-epoch or fetch; leader-epoch"
    )
    durability: Durability | None = Field(None, description="first start: what an acknowledgement means; fsync")

    session_timeout_ms: int = Field(9_000, ge=200, description="silence after which a node is fenced")
    heartbeat_interval_ms: int = Field(2_000, ge=20, description="time between two heartbeats of a node")
    tick_ms: int = Field(100, ge=10, le=1_000, description="how often sessions are checked")
    auto_leader_rebalance_enable: bool = Field(True, description="move leadership back to preferred replicas")
    leader_imbalance_check_interval_ms: int = Field(30_000, ge=100, description="how often imbalance is checked")
    default_partitions: int = Field(1, ge=1, description="partitions of a topic that names no number")
    default_replication_factor: int = Field(3, ge=1, description="replicas of such a topic, at most one per node")
    internal_replication_factor: int = Field(
        3, ge=1, description="replicas of the topics that hold the state of groups and transactions, never fewer"
    )
    group_state_partitions: int = Field(
        12, ge=1, le=1_000, description="partitions of __group_state; fixed once that is created"
    )
    transaction_state_partitions: int = Field(
        12, ge=1, le=1_000, description="partitions of __transaction_state; fixed once that is created"
    )

    unclean_recovery_timeout_ms: int = Field(
        -1,
        ge=-1,
        description="wait for replicas' logs before an unclean election, for topics that set no "
        "unclean.recovery.timeout.ms; a finite value ends promise P1 there; -1: for ever",
    )

    watch_backlog: int = Field(1_000, ge=1, description="changes a slow watcher may be behind before it is cut off")
    watch_merge_ms: int = Field(
        20, ge=0, le=1_000, description="window in which changes of metadata become one message to a subscriber"
    )
    probe_deadline_ms: int = Field(1_000, ge=10, description="time-out of a probe of a suspected node")
    ping_every_ms: int = Field(2_000, ge=100, description="keepalive pings on internal connections")
    ping_timeout_ms: int = Field(2_000, ge=100, description="unanswered ping after which a connection is closed")

    store: StoreKind = Field(
        StoreKind.SQLITE, description="where decisions are kept: sqlite, or etcd for several controllers"
    )
    controller_id: str = Field("", description="this controller's name among several; the host's name if empty")
    advertise: str = Field("", description="address given to clients, if it is not the bound one; host or host:port")
    internal_advertise: str = Field("", description="address given to nodes, if it is not the bound one")
    etcd_endpoints: Words = Field((), description="addresses of the members of etcd, host:port with commas")
    etcd_prefix: str = Field("/strandline/default", description="prefix of this cluster's keys in etcd")
    etcd_ca: str = Field(
        "", description="certificates of the authority that signed etcd's, PEM; empty: etcd is reached without TLS"
    )
    etcd_cert: str = Field("", description="certificate shown to etcd; empty: none")
    etcd_key: str = Field("", description="private key of etcd_cert, PEM")
    etcd_user: str = Field("", description="name of this controller at etcd, where etcd asks for a password")
    etcd_password_file: str = Field("", description="file with the password")
    etcd_quota_bytes: int = Field(
        2 << 30, ge=1 << 20, description="size at which etcd refuses writes, where its release does not say it"
    )
    reign_lease_s: int = Field(3, ge=2, le=60, description="time to live of the active controller's lease in etcd")
    log_snapshot_every: int = Field(
        1_000, ge=10, description="transactions after which etcd gets a snapshot and a shorter log"
    )
    part_bytes: int = Field(
        1 << 20, ge=200, le=1 << 20, description="largest value in etcd; a larger transaction is split into parts"
    )

    export_dir: exporting.ExportDir = ""
    export_uri: exporting.ExportUri = ""
    export_format: exporting.Format = ExportFormat.PARQUET
    export_roll_s: exporting.RollS = 300
    export_file_bytes: exporting.FileBytes = 64 << 20
    export_waiting_bytes: exporting.WaitingBytes = 64 << 20
    export_ring_events: exporting.RingEvents = 50_000

    @model_validator(mode="after")
    def _timings_agree(self) -> ControllerSettings:
        self.timings()
        exporting.check_export(self)
        settings.check_guards(self, bind=self.bind, internal_bind=self.internal_bind)
        if self.store is StoreKind.ETCD:
            self._check_etcd()
        return self

    def _check_etcd(self) -> None:
        if not self.etcd_endpoints:
            raise ValueError("store is etcd, but etcd_endpoints names no member; write host:port, with commas")
        members = self.members()
        for member in members:
            if members.count(member) > 1:
                raise ValueError(f"etcd_endpoints names {member.host}:{member.port} twice; name each member once")
        if bool(self.etcd_cert) != bool(self.etcd_key) or (self.etcd_cert and not self.etcd_ca):
            raise ValueError("etcd_cert and etcd_key go together, with etcd_ca")
        if bool(self.etcd_user) != bool(self.etcd_password_file):
            raise ValueError("etcd_user and etcd_password_file go together")
        if not self.etcd_ca and not self.insecure and not all(settings.is_loopback(member.host) for member in members):
            raise ValueError(
                "etcd_endpoints is beyond this machine and etcd_ca is empty; give etcd_ca, or set insecure on a "
                "network that untrusted hosts cannot reach"
            )
        for bound, reported in (("bind", "advertise"), ("internal_bind", "internal_advertise")):
            address = getattr(self, bound)
            if address and parse_endpoint(address).host in WILDCARDS and not getattr(self, reported):
                raise ValueError(
                    f"{bound} is every address of this machine; set {reported} to the one others should use"
                )

    def members(self) -> tuple[Endpoint, ...]:
        """The members of etcd."""
        return tuple(parse_endpoint(text) for text in self.etcd_endpoints)

    def timings(self) -> ControllerTimings:
        """The durations and limits of the core."""
        return ControllerTimings(
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            auto_leader_rebalance=self.auto_leader_rebalance_enable,
            leader_imbalance_check_interval_ms=self.leader_imbalance_check_interval_ms,
            default_partitions=self.default_partitions,
            default_replication_factor=self.default_replication_factor,
            internal_replication_factor=self.internal_replication_factor,
            group_state_partitions=self.group_state_partitions,
            transaction_state_partitions=self.transaction_state_partitions,
            unclean_recovery_timeout_ms=(
                None if self.unclean_recovery_timeout_ms < 0 else self.unclean_recovery_timeout_ms
            ),
        )

    def rules(self, stored: Rules | None) -> Rules:
        """The cluster's rules: the stored ones, or at the first start the given ones and defaults.

        Raises:
            ValueError: a given rule is not the stored one; the sentence names it.
        """
        given = {name: value for name in _RULES if (value := getattr(self, name)) is not None}
        if stored is None:
            return Rules(**given)
        for name, value in given.items():
            if value != getattr(stored, name):
                raise ValueError(
                    f"setting {name}: {value} is not the cluster's {getattr(stored, name)}; rules are chosen at the "
                    f"first start of the controller, leave the setting out"
                )
        return stored

    def keepalive(self) -> Keepalive:
        """Pings on internal connections."""
        return Keepalive(ping_every_ms=self.ping_every_ms, ping_timeout_ms=self.ping_timeout_ms)


_RULES = ("truncation", "durability")
