"""The pages are correct about files, settings, exit codes, errors and each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from strandline.cli.failures import ANALYTICS_IMAGE
from strandline.console.settings import ConsoleSettings
from strandline.controller.settings import ControllerSettings
from strandline.core.errors import ErrorCode
from strandline.node.settings import ReplicaSettings
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.settings import ServiceSettings, extra

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "services" / "strandline"
_FOUND = [
    *ROOT.glob("*.md"),
    *(page for room in ("docs", "deploy", "examples") for page in (ROOT / room).rglob("*.md")),
]
PAGES = sorted(page for page in _FOUND if "node_modules" not in page.parts)
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]

_FILE = re.compile(r"`([a-z_]+(?:/[a-z_0-9]+)*\.(?:py|proto))`")
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]+)?\)")
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b")


def _anchor(heading: str) -> str:
    """The anchor that a Markdown heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_a_file_that_a_page_names_exists(page: Path) -> None:
    """Every file that a page names exists."""
    places = (ROOT, SOURCES, SOURCES.parent, ROOT / "analytics", page.parent)
    # Beside a folder that was just named, or in the page's prose about one package: any file of that name will do.
    names = {path.name for folder in ("services", "analytics", "protos") for path in (ROOT / folder).rglob("*.py")}

    missing = [
        name
        for name in _FILE.findall(page.read_text())
        if not any((place / name).exists() for place in places) and ("/" in name or name not in names)
    ]

    assert missing == []


def test_the_tree_names_every_package() -> None:
    """The tree in ARCHITECTURE.md has each folder of `services/strandline`, and no other."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    tree = page.partition("\nservices/strandline/\n")[2].partition("\nservices/strandline_sim/")[0]
    named = set(re.findall(r"^  (\w+)/", tree, re.MULTILINE)) | set(re.findall(r", (\w+)/ ", tree))

    assert named == {path.parent.name for path in SOURCES.glob("*/__init__.py")}


def test_the_list_of_decisions_is_short() -> None:
    """ARCHITECTURE.md has at most 250 lines, and its list of decisions at most 25."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    listed = page.partition("## Where is X decided?")[2].partition("\n## ")[0]

    assert 20 <= len(re.findall(r"^- .*\? `", listed, re.MULTILINE)) <= 25
    assert len(page.splitlines()) <= 250


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_a_link_leads_somewhere(page: Path) -> None:
    """Relative links name a file that exists, and an anchor names one of its headings."""
    dead = []
    for target, anchor in _LINK.findall(_FENCED.sub("", page.read_text())):
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            dead.append(target)
        elif anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            dead += [target + anchor] if anchor[1:] not in map(_anchor, headings) else []

    assert dead == []


def test_every_block_is_as_make_docs_writes_it() -> None:
    """Settings, metrics, permissions and measured figures on the pages are those of the code and of the last runs."""
    rooms = os.pathsep.join(str(ROOT / "tests" / room) for room in ("bench", "sim", "security"))
    command = [sys.executable, str(ROOT / "tests" / "pages" / "docs.py"), "--check"]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": rooms}, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, ""), "run: make docs"


def _rows(page: str) -> dict[str, dict[str, str]]:
    """The comparing table of a page: by the label of each row, what each system's column says."""
    table = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    begin = next(index for index, cells in enumerate(table) if cells[:2] == ["Strandline", "Kafka"])
    return {label: dict(zip(table[begin], cells, strict=True)) for label, *cells in table[begin + 1 :]}


def test_both_comparing_tables_say_the_same() -> None:
    """A row that README and COMPARISON both have says the same of each system that both name."""
    short, long = (_rows((ROOT / page).read_text()) for page in ("README.md", "docs/COMPARISON.md"))
    shared = [
        (label, system, said, long[label][system])
        for label, cells in short.items()
        for system, said in cells.items()
        if label in long and system in long[label]
    ]

    assert {label for label, *_ in shared} >= {"consumer groups", "replicated control plane"}
    assert [row for row in shared if row[2] != row[3]] == []


def test_each_image_has_its_packages() -> None:
    """The data plane has `strandline` alone, analytics what reads exports as well; no image has the simulator."""
    file = (ROOT / "deploy/images/Dockerfile").read_text()
    lines = re.findall(r"^ && cp -a ([a-z_ ]+?) (?:strandline-\S+ )?/(layer[a-z-]*)/lib/", file, re.M)
    copied = {layer: words.split() for words, layer in lines}
    used = re.findall(r"^COPY --from=own (.*) /opt/strandline/?$", file, re.M)

    assert copied == {"layer": ["strandline"], "layer-analytics": [*ANALYTICS_IMAGE, "pyspark_strandline"]}
    assert used == ["/layer", "/layer /layer-analytics"]


@pytest.mark.parametrize("kind", [ReplicaSettings, ControllerSettings, ConsoleSettings])
def test_every_setting_says_when_to_change_it(kind: type[ServiceSettings]) -> None:
    """A setting of a page has advice; one without is reported by its name."""
    assert [name for name in kind.own_names() if not extra(kind.model_fields[name]).get("advice")] == []


def test_few_settings_are_documented() -> None:
    """At most 72 names: what is right for nearly everybody is tuned, and no page lists it."""
    assert len({*ReplicaSettings.own_names(), *ControllerSettings.own_names(), *ConsoleSettings.own_names()}) <= 72


def test_every_exit_code_is_listed() -> None:
    """OPERATIONS.md lists exactly the exit codes and names with which a process may end."""
    page = (ROOT / "docs" / "OPERATIONS.md").read_text()
    listed = {(int(number), name) for number, name in re.findall(r"^- (\d+) ([A-Z_]+): ", page, re.MULTILINE)}

    assert listed == {(int(code), code.name) for code in ExitCode}


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_an_error_that_a_page_names_is_an_error_of_ours(page: Path) -> None:
    """Names in capitals that look like error codes are in the closed table, or are gRPC's, or an exit code."""
    others = {"NOT_APPENDED", "MAY_APPEAR", "NOT_SERVING", "NOT_LEADER", "TOO_LARGE", *grpc.StatusCode.__members__}
    prose = re.sub(r"`[A-Z_]+`|STRANDLINE_\w+|\b[A-Z_]+=", "", _FENCED.sub("", page.read_text()))
    known = others | set(ErrorCode.__members__) | set(ExitCode.__members__)

    assert sorted(set(_ERROR.findall(prose)) - known) == []
