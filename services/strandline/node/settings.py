"""The settings of a data node, and the values that other packages get from them.

Invariant: a node starts only if its settings are valid as a whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator, model_validator

from strandline.core.groups.messages import GroupSettings
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import Endpoint
from strandline.core.transactions.records import TransactionSettings
from strandline.core.types import Durability, Role, Rules, Truncation
from strandline.export.encoding import ExportFormat
from strandline.rpc.channels import WILDCARDS, parse_endpoint
from strandline.runtime import exporting, settings
from strandline.runtime.log_form import LogFormat, LogFormatSetting, LogLevel, LogLevelSetting
from strandline.runtime.settings import setting, tuned

Address = Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")]
Words = Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)]


class ReplicaSettings(settings.ServiceSettings):
    """Settings of a data node (`strandline replica`)."""

    node_id: int = setting(
        ..., "id of the node, the same after every restart", "Assign each node one id and never change it.", ge=0
    )
    data_dir: Path = setting(..., "data directory; one process at a time", "A separate volume for each node.")
    controllers: Words = setting(
        ...,
        "bootstrap addresses of the controller, host:port with commas",
        "The controller's address for nodes.",
        min_length=1,
    )
    bind: Address = setting(
        "127.0.0.1:0",
        "address clients are served on; port 0: the kernel chooses",
        "A fixed port and an address that clients reach.",
    )
    internal_bind: Address = setting(
        "127.0.0.1:0",
        "address nodes are served on",
        "A fixed port and an address that nodes reach, if possible without clients in its network.",
    )
    advertise: str = setting(
        "",
        "address given to clients, if it is not the bound one; host or host:port",
        "If clients reach it by another name or port: containers, NAT, `0.0.0.0`.",
    )
    internal_advertise: str = setting(
        "", "address given to nodes, if it is not the bound one", "The same, for nodes and the controller."
    )
    roles: Words = setting(
        ("leader", "follower"),
        "leader,follower or, for an observer, follower",
        "`follower` for a remote copy that never leads or joins an ISR.",
    )
    rack: str = setting(
        "",
        "rack of the node",
        "The zone or the host's rack: replicas of a partition are placed in different ones.",
    )
    workers: int = setting(
        1,
        "data nodes that this process starts, each a process of its own",
        "On a machine with several cores; see Workers.",
        ge=1,
        le=64,
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
    metrics_per_partition: bool = setting(
        False,
        "also series for each partition; many partitions, many series",
        "If lag must be seen for each of up to a few thousand partitions.",
    )
    log_format: LogFormatSetting = LogFormat.AUTO
    log_level: LogLevelSetting = LogLevel.INFO
    reflection: settings.Reflection = True

    truncation: settings.ServedTruncation = setting(
        Truncation.LEADER_EPOCH,
        "how a returning follower finds its cut: leader-epoch or fetch",
        "Never after the first start.",
    )
    durability: Durability = setting(
        Durability.FSYNC,
        "what an acknowledgement means",
        "Never after the first start.",
    )

    replica_lag_time_max_ms: int = setting(
        30_000,
        "lag after which a follower leaves the ISR",
        "Smaller to wait less for a slow follower, with more ISR shrinks.",
        ge=100,
    )
    replica_fetch_max_bytes: int = setting(
        1 << 20, "bytes per partition and fetch", "Larger on links with a long round trip.", ge=1024, le=8 << 20
    )
    catch_up_bytes_per_s: int = setting(
        0,
        "bytes per second that replicas outside the ISR copy to this node, moves apart; 0: any number",
        "If a node that comes back after an outage slows the others; above what its partitions receive, "
        "or it never catches up.",
        ge=0,
    )
    quota_burst_s: settings.QuotaBurstS = 10
    purgatory_max_bytes: int = setting(
        256 << 20,
        "bytes of batches that may wait",
        "Larger if producers see THROTTLING_QUOTA_EXCEEDED and memory is free: it bounds memory.",
        ge=1,
    )

    group_session_timeout_ms: int = setting(
        45_000,
        "session time-out of a group member that does not choose one",
        "Smaller for a faster take-over of a dead member's partitions.",
        ge=100,
    )
    group_heartbeat_interval_ms: int = setting(
        5_000,
        "time between two heartbeats of a member; a third of its session if that is shorter",
        "Smaller for faster rebalances, at the cost of more requests.",
        ge=20,
    )
    group_max_size: int = setting(
        10_000, "members of one group", "Smaller to bound what one application can ask of a coordinator.", ge=1
    )
    offsets_retention_ms: int = setting(
        604_800_000,
        "age after which a committed offset that no member uses expires",
        "Larger for consumers that run rarely.",
        ge=1_000,
    )

    transaction_max_timeout_ms: int = setting(
        900_000,
        "longest transaction time-out that a producer may choose",
        "Smaller if readers of committed records must not wait that long.",
        ge=1_000,
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000,
        "age after which a transactional id without a transaction is forgotten",
        "Larger for producers that pause for more than a week.",
        ge=1_000,
    )

    segment_bytes: int = setting(
        1 << 30,
        "size at which a segment is full",
        "Smaller to make retention free space in smaller steps, with more files.",
        ge=1,
        le=(1 << 31) - 1,
    )
    low_space_bytes: int = setting(
        256 << 20,
        "free space below which produce is refused",
        "At least what followers may receive in the time you need to react.",
        ge=0,
    )
    stray_keep_ms: int = setting(
        3_600_000,
        "how long the log of a partition that was moved to other nodes is kept; while space is low, not at all",
        "Larger to be able to look at it longer.",
        ge=0,
    )
    shutdown_deadline_ms: int = setting(
        10_000,
        "longest wait for a controlled shutdown",
        "Larger with many partitions, below the supervisor's stop time-out.",
        ge=0,
    )

    export_dir: exporting.ExportDir = ""
    export_uri: exporting.ExportUri = ""
    export_format: exporting.Format = ExportFormat.PARQUET
    export_roll_s: exporting.RollS = 300
    sample_interval_ms: exporting.SampleMs = 1_000

    replica_fetch_wait_max_ms: int = tuned(500, "longest wait of a parked replica fetch", ge=1)
    high_watermark_checkpoint_interval_ms: int = tuned(5_000, "how often HWs are written", ge=100)
    retention_check_interval_ms: int = tuned(300_000, "how often retention is applied", ge=100)
    purgatory_max_entries: int = tuned(20_000, "produce calls that may wait for their commit", ge=1)
    group_min_session_timeout_ms: int = tuned(6_000, "shortest session time-out that a member may choose", ge=100)
    group_max_session_timeout_ms: int = tuned(1_800_000, "longest session time-out that a member may choose", ge=100)
    watch_merge_ms: settings.WatchMergeMs = 20
    tick_ms: int = tuned(50, "how often deadlines are checked", ge=1, le=1_000)
    fsync_threads: int = tuned(4, "logs that may be synced at the same time", ge=1, le=64)
    ping_every_ms: settings.PingEveryMs = 2_000
    ping_timeout_ms: settings.PingTimeoutMs = 2_000
    export_file_bytes: exporting.FileBytes = 64 << 20
    export_waiting_bytes: exporting.WaitingBytes = 64 << 20
    export_ring_events: exporting.RingEvents = 50_000
    sample_max_interval_ms: exporting.SampleMaxMs = 10_000

    @field_validator("controllers")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_endpoint(text)
            if value.count(text) > 1:
                raise ValueError(f"{text} is named twice; name each controller once")
        return value

    @field_validator("roles")
    @classmethod
    def _known_roles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if set(value) not in ({"leader", "follower"}, {"follower"}):
            raise ValueError("must be 'leader,follower' or 'follower'")
        return value

    @model_validator(mode="after")
    def _timings_agree(self) -> ReplicaSettings:
        self.timings()
        if not self.group_min_session_timeout_ms <= self.group_session_timeout_ms <= self.group_max_session_timeout_ms:
            raise ValueError("group_session_timeout_ms must be between the shortest and the longest session")
        exporting.check_export(self)
        settings.check_guards(self, bind=self.bind, internal_bind=self.internal_bind)
        for bound, reported in (("bind", "advertise"), ("internal_bind", "internal_advertise")):
            if parse_endpoint(getattr(self, bound)).host in WILDCARDS and not getattr(self, reported):
                raise ValueError(
                    f"{bound} is every address of this machine; set {reported} to the one others should use"
                )
        return self

    def rules(self) -> Rules:
        """The rules that the whole cluster shares."""
        return Rules(truncation=self.truncation, durability=self.durability)

    def timings(self) -> NodeTimings:
        """The durations and bounds of the core."""
        return NodeTimings(
            replica_lag_time_max_ms=self.replica_lag_time_max_ms,
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            replica_fetch_wait_max_ms=self.replica_fetch_wait_max_ms,
            replica_fetch_max_bytes=self.replica_fetch_max_bytes,
            catch_up_bytes_per_s=self.catch_up_bytes_per_s,
            high_watermark_checkpoint_interval_ms=self.high_watermark_checkpoint_interval_ms,
            retention_check_interval_ms=self.retention_check_interval_ms,
            purgatory_max_entries=self.purgatory_max_entries,
            purgatory_max_bytes=self.purgatory_max_bytes,
            sample_min_ms=self.sample_interval_ms if exporting.exports(self) else 0,
            sample_max_ms=self.sample_max_interval_ms,
        )

    def groups(self) -> GroupSettings:
        """The bounds of the groups that this node coordinates."""
        return GroupSettings(
            session_timeout_ms=self.group_session_timeout_ms,
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            heartbeat_interval_ms=self.group_heartbeat_interval_ms,
            max_members=self.group_max_size,
            offsets_retention_ms=self.offsets_retention_ms,
        )

    def transactions(self) -> TransactionSettings:
        """The bounds of the transactions that this node coordinates."""
        return TransactionSettings(
            timeout_ms=min(TransactionSettings().timeout_ms, self.transaction_max_timeout_ms),
            max_timeout_ms=self.transaction_max_timeout_ms,
            id_expiration_ms=self.transactional_id_expiration_ms,
        )

    def role_set(self) -> frozenset[Role]:
        """The roles as values of the protocol."""
        return frozenset(Role(role) for role in self.roles)

    def bootstrap(self) -> tuple[Endpoint, ...]:
        """The controller's addresses."""
        return tuple(parse_endpoint(text) for text in self.controllers)
