"""The transcript is correct: every command is run again, and prints what it shows; docs/GRPCURL.md is a part of it."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from buf_as_grpcurl import NO_SUCH_VERB
from google.protobuf.descriptor import FileDescriptor
from page_cluster import analytics_server, page_cluster, secured_cluster
from shell_page import Step, read_steps, rpcs, with_outputs
from typed_page import grpcurl_path, install_tool, typed

from strandline.v1 import (
    analytics_service_pb2,
    controller_service_pb2,
    follower_service_pb2,
    group_service_pb2,
    leader_service_pb2,
)

# ---- same_output
# Whether two outputs are the same: equal except for offsets, times, ids, epochs of nodes, and ports.
#
# Invariant: the set of fields, every name, error and sentence must be equal; only values that differ from run to run
# are replaced, each by a word for its kind.


_VOLATILE = (
    "port|base_offset|node_epoch|epoch_start_offset|log_size_bytes|current_metadata_offset|metadata_offset|producer_id"
    r"|\w+_offset|\w+_age_ms|timestamp_ms|controller_wall_us|high_watermark|records|events|run_id|topic_id|cluster_id"
    r"|commit_timestamp_ms|transaction_start_time_ms|directory_id|input_manifest_hash|start|end|hour|time|submitted|started|ended|state|as_of"
    r"|clock_err_us|\w+_us"
    "|ingest_seq|incarnation_id|int64_value|double_value|coverage|emitters|ordinal|total_rows|sentence|event_seq"
    "|emitter_seq|seq|hw|leo|meta_offset|next_page_token|incarnation|reign_id|mac"
)
_FIELD = re.compile(rf'("(?:{_VOLATILE})": )(?:"[^"]*"|-?[\d.e+]+)')
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_DEADLINE = re.compile(r"(Message: )(?:context deadline exceeded|Deadline Exceeded)")
_NODE_EPOCH = re.compile(r"(node_epoch|current) \d+")

_BLANKS = (
    (_UUID, "<id>"),
    (_ADDRESS, "<address>"),
    (_NODE_EPOCH, r"\1 <epoch>"),
    (_DEADLINE, r"\1<deadline>"),
)


def normal(output: str) -> list[str]:
    """The lines of an output with all volatile values replaced."""
    text = _FIELD.sub(r"\1<varies>", _in_order(output))
    for pattern, word in _BLANKS:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.splitlines()]


def _in_order(output: str) -> str:
    """JSON with its nodes in the order of their ids, instead of the order of registration; other text unchanged."""
    try:
        value = json.loads(output)
    except ValueError:
        return output
    _sort_nodes(value)
    return json.dumps(value, indent=2)


def _sort_nodes(value: Any) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("nodes"), list):
            value["nodes"].sort(key=lambda node: node.get("node_id", 0))
        for below in value.values():
            _sort_nodes(below)
    elif isinstance(value, list):
        for below in value:
            _sort_nodes(below)


PAGE = Path(__file__).with_name("transcript.md").read_text()
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "GRPCURL.md").read_text()
STEPS = read_steps(PAGE)
OF_ANALYTICS = [step for step in STEPS if "$ANALYTICS" in step.command or "$RUN_ID" in step.command]
OF_TLS = [step for step in STEPS if "$SECURED" in step.command]
OF_DATA = [step for step in STEPS if step not in [*OF_ANALYTICS, *OF_TLS]]

pytestmark = pytest.mark.timeout(600)


def _rpcs_of(file: FileDescriptor) -> Iterator[str]:
    for service in file.services_by_name.values():
        yield from (f"{service.full_name}/{method.name}" for method in service.methods)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the cluster; its export stays there for the analytics."""
    return tmp_path_factory.mktemp("grpcurl")


@pytest.fixture(scope="module")
def tools(directory: Path) -> Path:
    """grpcurl where it is found, buf behind its command line otherwise."""
    return install_tool(directory / "tools", grpcurl=grpcurl_path())


def _differences(steps: list[Step], variables: dict[str, str], tools: Path) -> list[str]:
    """The steps whose output differs from the page; `describe` is skipped where buf is used instead."""
    found = []
    for step, code, output in typed(steps, variables, tools):
        if step.only_sets:
            found += [f"{step.name} ended with {code}"] if code else []
        elif code != NO_SUCH_VERB:
            wanted, got = normal(step.output or ""), normal(output)
            if wanted != got:
                found.append("\n".join([step.name, *difflib.unified_diff(wanted, got, "page", "now", lineterm="")]))
    return found


def test_every_rpc_has_a_command() -> None:
    """An RPC of the contract that is missing on the page is found by its name."""
    modules = (
        analytics_service_pb2,
        controller_service_pb2,
        follower_service_pb2,
        group_service_pb2,
        leader_service_pb2,
    )
    every = {name for module in modules for name in _rpcs_of(module.DESCRIPTOR)}

    assert sorted(every - rpcs(PAGE)) == []


def test_every_command_of_the_guide_is_run() -> None:
    """The commands of docs/GRPCURL.md are commands of the transcript, word for word."""
    typed_ones = {line for step in STEPS for line in step.command.splitlines()}
    blocks = "".join(step.command + "\n" for step in read_steps(GUIDE)).splitlines()
    shown = [line for line in blocks if "grpcurl" in line]

    assert len(shown) >= 20
    assert [line for line in shown if line not in typed_ones] == []


def test_every_command_shows_its_output() -> None:
    """A block that is neither run nor marked as not run is reported."""
    assert [step.name for step in STEPS if step.output is None and not step.only_sets] == []


def test_writing_back_what_was_read_changes_nothing() -> None:
    """`rewrite.py` changes outputs only."""
    assert with_outputs(PAGE, {step.line: step.output for step in STEPS if step.output is not None}) == PAGE


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ('{"base_offset": "3"}', '{"base_offset": "41"}', True),
        ('{"error_code": "ERROR_CODE_FENCED_LEADER_EPOCH"}', '{"error_code": "ERROR_CODE_INVALID_REQUEST"}', False),
        ('{"base_offset": "3"}', "{}", False),
        ('{"nodes": [{"node_id": 3}, {"node_id": 1}]}', '{"nodes": [{"node_id": 1}, {"node_id": 3}]}', True),
        ('{"isr": [1, 2]}', '{"isr": [1]}', False),
        ("a.B\nc.D\n", "a.B\n", False),
    ],
)
def test_outputs_differ_by_more_than_numbers(one: str, other: str, are_same: bool) -> None:
    """Offsets and orders of nodes may differ; a name, a field or a line may not."""
    assert (normal(one) == normal(other)) is are_same


@pytest.fixture(scope="module")
def differences_of_cluster(directory: Path, tools: Path) -> list[str]:
    """The differences of the cluster's commands; run once, in a fresh cluster, whose export stays."""
    with page_cluster(directory) as where:
        return _differences(OF_DATA, where, tools)


def test_the_commands_for_the_cluster_print_what_the_page_says(differences_of_cluster: list[str]) -> None:
    """Run in a fresh cluster of real processes, each command answers as written."""
    assert "\n".join(differences_of_cluster) == ""


@pytest.mark.parametrize("program", ["grpcurl", "buf"])
def test_the_commands_with_certificates_print_what_the_page_says(directory: Path, tools: Path, program: str) -> None:
    """Run in a cluster with TLS, each command answers as written, errors included; so does buf."""
    by_buf = install_tool(directory / "tools-of-buf", grpcurl=None) if program == "buf" else tools
    with secured_cluster(directory / program) as where:
        assert "\n".join(_differences(OF_TLS, where, by_buf)) == ""


@pytest.mark.usefixtures("differences_of_cluster")
def test_the_commands_for_the_analytics_print_what_the_page_says(directory: Path, tools: Path) -> None:
    """Run on an analytics server over that cluster's export, each command answers as written."""
    with analytics_server(directory) as where:
        assert "\n".join(_differences(OF_ANALYTICS, where, tools)) == ""
