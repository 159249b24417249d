"""The settings of the console.

Invariant: what would let strangers read or change a cluster is refused here, in one sentence, before a port is opened.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from strandline.rpc.channels import parse_endpoint
from strandline.runtime import settings
from strandline.runtime.log_form import LogFormat, LogFormatSetting, LogLevel, LogLevelSetting

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def _is_address(text: str) -> str:
    parse_endpoint(text)
    return text


Address = Annotated[str, AfterValidator(_is_address)]
Words = Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)]


class ConsoleSettings(settings.ServiceSettings):
    """Settings of the web console (`strandline console`)."""

    bootstrap: Annotated[Words, Field(min_length=1)] = Field(description="addresses of the controller, with commas")
    bind: Address = Field("127.0.0.1:8080", description="address for browsers; port 0: the kernel chooses")
    https_cert: str = Field("", description="certificate for HTTPS, PEM; empty: plain HTTP")
    https_key: str = Field("", description="the private key of https_cert, PEM")
    insecure: bool = Field(False, description="serve plain HTTP beyond loopback, for instance behind a proxy with TLS")
    hosts: Words = Field((), description="host names browsers may use; empty: the loopback names on loopback, else any")
    allow_changes: bool = Field(False, description="show forms that change the cluster: creation of topics")
    report: str = Field("", description="address of the analytics report to link to; empty: no link")
    tls_cert: settings.TlsCert = ""
    tls_key: settings.TlsKey = ""
    tls_ca: settings.TlsCa = ""
    health_bind: settings.HealthBind = ""
    metrics_bind: settings.MetricsBind = ""
    metrics_tls: settings.MetricsTls = False
    log_format: LogFormatSetting = LogFormat.AUTO
    log_level: LogLevelSetting = LogLevel.INFO
    metadata_stale_ms: int = Field(
        30_000, ge=1_000, description="age of a node's metadata above which the console changes to another node"
    )
    look_interval_ms: int = Field(1_000, ge=100, description="time between two polls of a node, for all browsers")
    look_deadline_ms: int = Field(900, ge=50, description="longest wait for a node's answer")
    max_browsers: int = Field(100, ge=1, description="pages that may be kept live at once")
    transitions_kept: int = Field(2_000, ge=1, description="transitions remembered, the newest")
    partitions_followed: int = Field(500, ge=1, description="partitions whose lanes are remembered")
    shutdown_deadline_ms: int = Field(3_000, ge=100, description="longest wait for open pages at a stop")

    @model_validator(mode="after")
    def _nothing_is_open_by_accident(self) -> ConsoleSettings:
        settings.check_tls(self)
        if bool(self.https_cert) != bool(self.https_key):
            raise ValueError("https_cert and https_key belong together; give both or neither")
        if not self.on_loopback and not self.https_cert and not self.insecure:
            raise ValueError(
                f"bind {self.bind} is beyond loopback and would serve plain HTTP to strangers; give https_cert and "
                f"https_key, or insecure if a proxy in front serves TLS"
            )
        if not self.on_loopback and self.allow_changes and not self.hosts:
            raise ValueError("allow_changes beyond loopback needs hosts: the names browsers reach this console by")
        if self.report and urlsplit(self.report).scheme not in ("http", "https", ""):
            raise ValueError(f"report '{self.report}' is not an address for browsers; write https://... or /path")
        return self

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the console."""
        return settings.is_loopback(parse_endpoint(self.bind).host)

    @property
    def allowed_hosts(self) -> tuple[str, ...]:
        """The host names that are answered; empty: any. Guards against names that are rebound to this address."""
        return self.hosts or (_LOOPBACK_NAMES if self.on_loopback else ())
