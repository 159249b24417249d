"""The transcript is correct: every command is run again, and prints what it shows; docs/GRPCURL.md is a part of it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest
from buf_as_grpcurl import NO_SUCH_VERB
from google.protobuf.descriptor import FileDescriptor
from page_cluster import analytics_server, page_cluster, secured_cluster
from same_output import normal
from shell_page import Step, read_steps, rpcs, with_outputs
from typed_page import grpcurl_path, install_tool, typed

from strandline.v1 import (
    analytics_service_pb2,
    controller_service_pb2,
    follower_service_pb2,
    group_service_pb2,
    leader_service_pb2,
)

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
