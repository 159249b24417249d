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
from strandline.runtime.settings import setting, tuned

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def _is_address(text: str) -> str:
    parse_endpoint(text)
    return text


Address = Annotated[str, AfterValidator(_is_address)]
Words = Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)]


class ConsoleSettings(settings.ServiceSettings):
    """Settings of the web console (`strandline console`)."""

    bootstrap: Annotated[Words, Field(min_length=1)] = setting(
        ..., "addresses of the controller, with commas", "The controller's address for clients."
    )
    bind: Address = setting(
        "127.0.0.1:8080",
        "address for browsers; port 0: the kernel chooses",
        "For browsers on other machines: a fixed address, with HTTPS.",
    )
    https_cert: str = setting(
        "",
        "certificate for HTTPS, PEM; empty: plain HTTP",
        "As soon as browsers on other machines connect without a proxy.",
    )
    https_key: str = setting("", "the private key of https_cert, PEM", "With `https_cert`.")
    insecure: bool = setting(
        False,
        "serve plain HTTP beyond loopback, for instance behind a proxy with TLS",
        "Behind a proxy that serves HTTPS and authenticates users.",
    )
    hosts: Words = setting(
        (), "host names browsers may use; empty: the loopback names on loopback, else any", "Always beyond loopback."
    )
    allow_changes: bool = setting(
        False,
        "show forms that change the cluster: creation of topics",
        "Where everyone who can reach the page may create topics.",
    )
    report: str = setting(
        "",
        "address of the analytics report to link to; empty: no link",
        "The address that serves the analytics report.",
    )
    tls_cert: str = setting(
        "",
        "certificate of this process, PEM, read again when it changes; empty: off",
        "If the cluster speaks TLS: a certificate of a client, or of an admin for `allow_changes`.",
    )
    tls_key: settings.TlsKey = ""
    tls_ca: settings.TlsCa = ""
    health_bind: settings.HealthBind = ""
    metrics_bind: settings.MetricsBind = ""
    metrics_tls: settings.MetricsTls = False
    log_format: LogFormatSetting = LogFormat.AUTO
    log_level: LogLevelSetting = LogLevel.INFO
    metadata_stale_ms: int = setting(
        30_000,
        "age of a node's metadata above which the console changes to another node",
        "Larger if the console should keep its node through longer outages of controllers.",
        ge=1_000,
    )
    look_interval_ms: int = setting(
        1_000,
        "time between two polls of a node, for all browsers",
        "Larger to poll less; changes of ISR and leader still appear at once.",
        ge=100,
    )
    shutdown_deadline_ms: int = setting(
        3_000, "longest wait for open pages at a stop", "Keep it below the supervisor's stop time-out.", ge=100
    )

    look_deadline_ms: int = tuned(900, "longest wait for a node's answer", ge=50)
    max_browsers: int = tuned(100, "pages that may be kept live at once", ge=1)
    transitions_kept: int = tuned(2_000, "transitions remembered, the newest", ge=1)
    partitions_followed: int = tuned(500, "partitions whose lanes are remembered", ge=1)

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
