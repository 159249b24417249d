"""The settings of the controller, and the values that the core gets from them.

Invariant: the two rules are chosen once, at the first start; a rule that is given later must equal the stored one.
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
from strandline.runtime.settings import setting, tuned

Words = Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)]

Address = Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")]


class StoreKind(StrEnum):
    """Where a controller stores its decisions."""

    SQLITE = "sqlite"
    ETCD = "etcd"


class ControllerSettings(settings.ServiceSettings):
    """Settings of the controller (`strandline controller`)."""

    data_dir: Path = setting(
        ..., "directory of the metadata store; one process at a time", "A separate volume with backups."
    )
    bind: Address = setting(
        "127.0.0.1:0",
        "address for nodes and clients; port 0: the kernel chooses",
        "A fixed port and an address that clients reach.",
    )
    internal_bind: settings.PlainAddress = setting(
        "",
        "address nodes are served on; empty: they use bind too",
        "To keep nodes' calls on a port that clients do not reach.",
    )
    tls_cert: settings.TlsCert = ""
    tls_key: settings.TlsKey = ""
    tls_ca: settings.TlsCa = ""
    authorization: settings.AuthorizationSetting = settings.Authorization.OFF
    token_issuers: settings.TokenIssuers = ""
    insecure: settings.Insecure = False
    health_bind: settings.HealthBind = ""
    metrics_bind: settings.MetricsBind = ""
    metrics_tls: settings.MetricsTls = False
    log_format: LogFormatSetting = LogFormat.AUTO
    log_level: LogLevelSetting = LogLevel.INFO
    reflection: settings.Reflection = True

    truncation: settings.ServedTruncation | None = setting(
        None,
        "first start: how a follower finds its cut: leader-epoch or fetch; leader-epoch",
        "Never after the first start.",
    )
    durability: Durability | None = setting(
        None,
        "first start: what an acknowledgement means; fsync",
        "Never after the first start.",
    )

    session_timeout_ms: int = setting(
        9_000,
        "silence after which a node is fenced",
        "Smaller for a faster failover when a machine vanishes, not below the longest pause.",
        ge=200,
    )
    heartbeat_interval_ms: int = setting(
        2_000, "time between two heartbeats of a node", "A quarter of the session time-out or less.", ge=20
    )
    auto_leader_rebalance_enable: bool = setting(
        True, "move leadership back to preferred replicas", "Off, if leadership should move only on request."
    )
    default_partitions: int = setting(
        1, "partitions of a topic that names no number", "What most of your topics use.", ge=1
    )
    default_replication_factor: int = setting(
        3,
        "replicas of such a topic, at most one per node",
        "What most of your topics use; 3 survives the permanent loss of one machine.",
        ge=1,
    )
    internal_replication_factor: int = setting(
        3,
        "replicas of the topics that hold the state of groups and transactions, never fewer",
        "The number of nodes, in a cluster that has fewer than three.",
        ge=1,
    )

    moves_per_node: int = setting(
        5,
        "running reassignments that may add a replica to one node, and that may take one from it; others wait",
        "Smaller if moves slow clients down, larger for a shorter move of many small partitions.",
        ge=1,
    )

    quota_burst_s: settings.QuotaBurstS = 10
    unclean_recovery_timeout_ms: int = setting(
        -1,
        "wait for replicas' logs before an unclean election, for topics that set no unclean.recovery.timeout.ms; "
        "a finite value ends promise P1 there; -1: for ever",
        "Only where availability matters more than acknowledged records.",
        ge=-1,
    )

    store: StoreKind = setting(
        StoreKind.SQLITE,
        "where decisions are kept: sqlite, or etcd for several controllers",
        "`etcd` to run several controllers, of which one decides.",
    )
    controller_id: str = setting(
        "",
        "this controller's name among several; the host's name if empty",
        "With several controllers on one machine.",
    )
    advertise: str = setting(
        "",
        "address given to clients, if it is not the bound one; host or host:port",
        "If clients reach it by another name or port: containers, NAT, `0.0.0.0`.",
    )
    internal_advertise: str = setting(
        "",
        "address given to nodes, if it is not the bound one",
        "The same, for nodes and other controllers; never the address of a load balancer.",
    )
    etcd_endpoints: Words = setting(
        (),
        "addresses of the members of etcd, host:port with commas",
        "With `store=etcd`: every member.",
    )
    etcd_prefix: str = setting(
        "/strandline/default",
        "prefix of this cluster's keys in etcd",
        "One for each cluster, where several share an etcd.",
    )
    etcd_ca: str = setting(
        "",
        "certificates of the authority that signed etcd's, PEM; empty: etcd is reached without TLS",
        "As soon as etcd is on another machine.",
    )
    etcd_cert: str = setting("", "certificate shown to etcd; empty: none", "Where etcd runs with `--client-cert-auth`.")
    etcd_key: str = setting("", "private key of etcd_cert, PEM", "With `etcd_cert`.")
    etcd_user: str = setting("", "name of this controller at etcd", "Where etcd asks for a password.")
    etcd_password_file: str = setting("", "file with the password", "With `etcd_user`.")
    reign_lease_s: int = setting(
        3,
        "time to live of the active controller's lease in etcd",
        "Larger on machines that pause for seconds; a vanished one is then replaced later.",
        ge=2,
        le=60,
    )

    export_dir: exporting.ExportDir = ""
    export_uri: exporting.ExportUri = ""
    export_format: exporting.Format = ExportFormat.PARQUET
    export_roll_s: exporting.RollS = 300

    tick_ms: int = tuned(100, "how often sessions are checked", ge=10, le=1_000)
    leader_imbalance_check_interval_ms: int = tuned(30_000, "how often imbalance is checked", ge=100)
    group_state_partitions: int = tuned(12, "partitions of __group_state; fixed once that is created", ge=1, le=1_000)
    transaction_state_partitions: int = tuned(
        12, "partitions of __transaction_state; fixed once that is created", ge=1, le=1_000
    )
    watch_backlog: int = tuned(1_000, "changes a slow watcher may be behind before it is cut off", ge=1)
    watch_merge_ms: settings.WatchMergeMs = 20
    probe_deadline_ms: int = tuned(1_000, "time-out of a probe of a suspected node", ge=10)
    ping_every_ms: settings.PingEveryMs = 2_000
    ping_timeout_ms: settings.PingTimeoutMs = 2_000
    etcd_quota_bytes: int = tuned(
        2 << 30, "size at which etcd refuses writes, where its release does not say it", ge=1 << 20
    )
    log_snapshot_every: int = tuned(1_000, "transactions after which etcd gets a snapshot and a shorter log", ge=10)
    part_bytes: int = tuned(
        1 << 20, "largest value in etcd; a larger transaction is split into parts", ge=200, le=1 << 20
    )
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
            moves_per_node=self.moves_per_node,
            internal_replication_factor=self.internal_replication_factor,
            group_state_partitions=self.group_state_partitions,
            transaction_state_partitions=self.transaction_state_partitions,
            quota_burst_ms=self.quota_burst_s * 1_000,
            unclean_recovery_timeout_ms=(
                None if self.unclean_recovery_timeout_ms < 0 else self.unclean_recovery_timeout_ms
            ),
        )

    def rules(self, stored: Rules | None) -> Rules:
        """The cluster's rules: the stored ones, or at the first start the given ones and defaults.

        Raises:
            ValueError: a given rule differs from the stored one; the message names it.
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
