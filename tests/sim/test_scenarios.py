"""Scenario files and their page are true, every claim can fail, and a scenario's state events can be verified."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from strandline.core.errors import ErrorCode
from strandline.export.destination import LocalDirectory
from strandline.export.verify import verify
from strandline_sim.scenario.control import CLUSTER_ID
from strandline_sim.scenario.language import FOLDER, ScenarioFailed, parse, shipped
from strandline_sim.scenario.run import VERBS, carry_out, run_file, run_text
from strandline_sim.scenario.stage import Stage
from strandline_sim.scenario.truth import CHECKED
from strandline_sim.scenario.verbs.wire import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "SCENARIOS.md").read_text(encoding="utf-8")
MORE = Path(__file__).with_name("verbs.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```scenario\n(.*?)```", PAGE + MORE, re.DOTALL)
ITEMS = dict(re.findall(r"^- `([a-z-]+)`: (.*)$", PAGE, re.MULTILINE))
"""What the page says of each verb."""


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_example_comes_true(number: int) -> None:
    """An example prints exactly what the page, or verbs.md, shows."""
    assert run_text(EXAMPLES[number], f"example {number + 1}").text() == EXAMPLES[number]


def test_every_verb_is_described() -> None:
    """The page describes exactly the existing verbs."""
    assert set(ITEMS) == set(VERBS)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_its_options_and_an_example(name: str) -> None:
    """Every option is on the page, and an example uses the verb."""
    assert [option for option in VERBS[name].options if f"{option}=" not in ITEMS[name]] == []
    assert any(re.search(rf"^{name}\b", text, re.MULTILINE) for text in EXAMPLES)


def test_the_lists_of_the_page_are_complete() -> None:
    """Kinds of messages and properties are those of the code; the errors on the page exist."""
    messages = PAGE.partition("## Places, links and messages")[2].partition("\n## ")[0]
    kinds = re.findall(r"^\| `([a-z-]+)` \|", messages, re.MULTILINE)
    (properties,) = re.findall(r"^Checked: (.*)\.$", PAGE, re.MULTILINE)
    errors = re.findall(r"^expect-error \S+ (\w+)$", PAGE + MORE, re.MULTILINE)

    assert kinds == list(KINDS)
    assert properties.split(", ") == list(CHECKED)
    assert set(errors) <= set(ErrorCode.__members__)


PHRASES = PAGE.partition("## How to say it")[2].partition("\n## ")[0].splitlines()
NO_COMMANDS = ("silently", "stabilize", "set ", "preload ", "nodes ", "topic ")
B_ASKS = "strandline-scenario 1\nset durability=page-cache\nnodes A B C\ntopic lines replicas=A,B,C\nappend A r0..r5\n"
A_ANSWERS = B_ASKS + "deliver B->A\n"


@pytest.mark.parametrize("row", [line for line in PHRASES if "`" in line])
def test_the_phrases_can_be_played(row: str) -> None:
    """Everything in one line of the list can be said in this order, when B has asked A or A has answered B."""
    phrases = re.findall(r"`([^`]+)`", row.split(": ", 1)[1])
    commands = "\n".join(phrase for phrase in phrases if not phrase.startswith(NO_COMMANDS))
    failures = []
    for scene in (B_ASKS, A_ANSWERS):
        try:
            run_text(scene + commands + "\n", "phrases", compare=False)
        except ScenarioFailed as failed:
            failures.append(str(failed))

    assert len(failures) < 2, failures


def test_every_scenario_that_the_page_names_ships() -> None:
    """What a reader is asked to run is in the package."""
    table = PAGE.partition("## Scenarios to read")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:table|tr\d+)_\w+)`", table))

    assert named and named <= {path.stem for path in shipped()}


# Every claim can fail: each verb in a small scene, and every claim of every scenario file when changed.


FILES = shipped()
SCENE = (
    "strandline-scenario 1\nnodes A B C\ntopic lines replicas=A,B,C min-isr=2\n"
    "produce A m0\nproduce A m1 acks=1\ndeliver B->A A->B\ncrash C\nproduce B m2\nfetch A as=B label=all\n"
)
"""A leads m0 m1, B has both, C is down; m0 waits, m1 is acked, m2 was refused."""

CASES: list[tuple[str, str, list[str]]] = [
    ("expect-log A m0@0 m1@0", "the log of A", [
        "expect-log A m0@0", "expect-log A m0@0 m1@1", "expect-log A m1@0 m0@0",
    ]),
    ("expect-log A m0..m1@0", "the log of A", ["expect-log A m0..m2@0", "expect-log A empty"]),
    ("expect-log C empty", "the log of C", ["expect-log C m0@0"]),
    ("expect-log A m1@0 from=1", "the log of A", ["expect-log A m1@0 from=0", "expect-log A m1@0 from=2"]),
    ("expect-log A = B", "the log of", ["expect-log A = C", "expect-log A = B = C"]),
    ("expect-log-start A=0 B=0", "the log start of", ["expect-log-start A=1", "expect-log-start A=0 B=1"]),
    ("expect-producer-ids A=none", "the first producer id of A", ["expect-producer-ids A=0"]),
    ("expect-read all m0@0 m1@0", "what was read from all", [
        "expect-read all m0@0", "expect-read all empty", "expect-read all m0..m1@1", "expect-read all UNKNOWN_TOPIC_ID",
    ]),
    ("expect-hw A=0 B=0", "the hw of", ["expect-hw A=1", "expect-hw A=0 B=1"]),
    ("expect-leo A=2 B=2", "the leo of", ["expect-leo A=1", "expect-leo A=2 B=3"]),
    ("expect-lso A=0 B=0", "the lso of", ["expect-lso A=1", "expect-lso A=0 B=1"]),
    ("expect-remote A B=0 C=none", "the remote leo of", [
        "expect-remote A B=2", "expect-remote A C=0", "expect-remote A B=none",
    ]),
    ("expect-isr ctl=A,B,C A=C,B,A", "the isr at", [
        "expect-isr ctl=A,B", "expect-isr ctl=none", "expect-isr A=A,B,C,D",
    ]),
    ("expect-elr none", "the elr", ["expect-elr C"]),
    ("expect-min-isr 2", "the effective min ISR", ["expect-min-isr 1"]),
    ("expect-reassigning", "", ["expect-reassigning adding=B", "expect-reassigning queued=A,B"]),
    ("expect-leader A epoch=0", "the leader", ["expect-leader B", "expect-leader none", "expect-leader A epoch=1"]),
    ("expect-active ctl epoch=1", "the ", ["expect-active none", "expect-active c1", "expect-active ctl epoch=2"]),
    ("expect-position ctl=1:8 A=1:8 C=1:8", "the position of", [
        "expect-position ctl=1:9", "expect-position ctl=2:8", "expect-position A=1:7", "expect-position A=none",
    ]),
    ("expect-epochs A 0@0", "the epochs of A", [
        "expect-epochs A 0@1", "expect-epochs A 0@0 1@2", "expect-epochs A empty",
    ]),
    ("expect-state A=leads B=fetching C=down", "the state of", [
        "expect-state A=follows", "expect-state B=truncating", "expect-state C=none",
    ]),
    ("expect-error m2 NOT_LEADER_OR_FOLLOWER", "the answer to m", ["expect-error m2 NONE", "expect-error m0 NONE"]),
    ("expect-acks m0=waiting m1=acked@1 m2=refused", "m", [
        "expect-acks m0=acked", "expect-acks m1=acked@0", "expect-acks m1=lost", "expect-acks m2=waiting",
    ]),
    ("expect-txn P=none", "the transaction of P", ["expect-txn P=Empty@1000:0"]),
    ("expect-offsets G 0=none 1=none", "the offset of G", ["expect-offsets G 0=0", "expect-offsets G 0=none 1=5"]),
    ("expect-invariant I5 holds", "I5", ["expect-invariant I5 broken"]),
    ("expect-invariant all hold", "", []),
]  # fmt: skip
"""A claim that holds in the scene, how the message of one that does not begins, and claims that do not hold."""


def test_every_claim_verb_is_here() -> None:
    """Every verb that makes a claim has a case below."""
    assert {claim.split()[0] for claim, *_ in CASES} == {name for name in VERBS if name.startswith("expect-")}


@pytest.mark.parametrize(("claim", "about", "twists"), CASES)
def test_a_claim_holds_and_its_twists_fail(claim: str, about: str, twists: list[str]) -> None:
    """A true claim passes and prints nothing; a false one fails at its line, with the expected and actual value."""
    assert run_text(SCENE + claim + "\n", "scene", compare=False).outputs[10] == []
    for twisted in twists:
        with pytest.raises(ScenarioFailed) as caught:
            run_text(SCENE + twisted + "\n", "scene", compare=False)
        failed = caught.value
        assert (failed.line, failed.expected.startswith(about)) == (10, True)
        assert failed.actual != failed.expected
        assert str(failed).splitlines()[2].strip() == "^"


def test_all_hold_fails_when_a_property_is_broken() -> None:
    """The first sentence of each violation is in the message; only the property can be claimed broken, by its name."""
    broken = SCENE + "fetch A as=B offset=2\nfetch A as=C\nfetch A as=C offset=2\n"
    with pytest.raises(ScenarioFailed) as caught:
        run_text(broken + "expect-invariant all hold\n", "scene", compare=False)
    assert caught.value.actual.startswith("I3: C, in the ISR of A, has nothing at offset 0")
    run_text(broken + "expect-invariant I3 broken\nexpect-invariant I1 holds\n", "scene", compare=False)
    with pytest.raises(ScenarioFailed):
        run_text(broken + "expect-invariant I3 holds\n", "scene", compare=False)
    with pytest.raises(ScenarioFailed):
        run_text(broken + "expect-invariant I1 broken\n", "scene", compare=False)


def twisted(claim: str) -> str:
    """Another claim, which is false if this one is true."""
    verb, *words = claim.split("#")[0].split()
    if verb == "expect-log" and "=" in words:
        return f"expect-log {words[0]} nothing-like-this@99"
    if verb == "expect-read":
        return f"{verb} {words[0]} {'m99@99' if words[1] != 'm99@99' else 'empty'}"
    if verb in ("expect-log", "expect-epochs"):
        kept = [word for word in words if word != "empty"]
        options = [word for word in kept if word.startswith("from=")]
        return " ".join([verb, *(w for w in kept if w not in options), "99@99", *options])
    if verb == "expect-invariant":
        return (
            f"{verb} I0 broken"
            if words[0] == "all"
            else f"{verb} {words[0]} {'holds' if words[1] == 'broken' else 'broken'}"
        )
    if verb in ("expect-elr", "expect-leader"):
        return f"{verb} {'nobody' if words[0] != 'nobody' else 'none'}"
    if verb == "expect-error":
        return f"{verb} {words[0]} {'UNKNOWN_SERVER_ERROR' if words[1] == 'NONE' else 'NONE'}"
    if verb == "expect-reassigning":
        return f"{verb} adding=nobody"
    if verb == "expect-min-isr":
        return f"{verb} {int(words[0]) + 1}"
    left, _, right = words[-1].partition("=")
    if verb == "expect-isr":
        other = "none" if right != "none" else "nobody"
    elif right.isdecimal():
        other = str(int(right) + 1)
    elif verb == "expect-remote":
        other = "77"
    else:
        other = "down" if verb == "expect-state" and right != "down" else "lost" if right != "lost" else "waiting"
    return " ".join([verb, *words[:-1], f"{left}={other}"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_claim_of_a_file_is_idle(path: Path) -> None:
    """Where a file claims something, the opposite fails."""
    script, stage = parse(path.read_text(encoding="utf-8"), path.name), Stage()
    for command in script.commands:
        if command.text.startswith("expect-"):
            (line,) = parse(f"strandline-scenario 1\n{twisted(command.text)}\n", "twisted").commands
            with pytest.raises(ScenarioFailed) as caught:
                carry_out(stage, script, line)
            assert caught.value.actual, command.text
        carry_out(stage, script, command)


def test_every_file_claims_something_of_logs_or_marks() -> None:
    """Every file makes at least one claim about its run."""
    for path in FILES:
        claims = re.findall(r"^(expect-\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(claims) & {"expect-log", "expect-hw", "expect-leo", "expect-isr", "expect-leader"}, path.stem


# The state events of a scenario: written by the services' exporter, verified by its own check; and its trace.


def lines(directory: Path, place: str) -> list[dict[str, object]]:
    """The lines that a place printed for people."""
    return [json.loads(line) for line in (directory / place / "events.jsonl").read_text().splitlines()]


def test_an_export_is_sound(tmp_path: Path) -> None:
    """The exporter's own check finds every number of every incarnation; each process is an incarnation of its own."""
    run_file(FOLDER / "e_t36_epochs_on_bounces.scenario", export=tmp_path)
    found = verify(LocalDirectory(tmp_path), CLUSTER_ID)

    assert found.is_sound
    # The controller (node -1) had one epoch, A led in its first process, B in its second; followers emit nothing.
    assert [(i.node_id, i.incarnation) for i in found.incarnations] == [(-1, 1), (1, 1), (2, 2)]
    assert all(i.coverage == 1.0 for i in found.incarnations)


def test_events_carry_the_time_and_the_names_of_the_story(tmp_path: Path) -> None:
    """Elections and truncations are there, at the scenario's own time, with the topic's name."""
    run_file(FOLDER / "tr01_high_watermark.scenario", export=tmp_path)
    (cut,) = [row for row in lines(tmp_path, "A") if row["event_type"] == "TRUNCATION"]
    elected = [row for row in lines(tmp_path, "ctl") if row["event_type"] == "LEADER_CHANGE"]

    assert (cut["node_id"], cut["ts_wall_us"], cut["topic"]) == (1, 6_000_000, "lines")
    assert [row["new_leader"] for row in elected] == [2, 1]


def test_the_same_run_exports_the_same_bytes(tmp_path: Path) -> None:
    """No file depends on when or where it was written."""
    made = []
    for name in ("one", "other"):
        run_file(FOLDER / "tr16_second_attempt.scenario", export=tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        made.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})

    assert made[0] == made[1]
    assert any("transitions" in str(path) for path in made[0])


def test_what_happened_before_a_failure_is_exported(tmp_path: Path) -> None:
    """A scenario that fails still closes its export."""
    file = tmp_path / "story.scenario"
    file.write_text("strandline-scenario 1\nnodes A B\ntopic lines replicas=A,B\nexpect-leo A=3\n")
    with pytest.raises(ScenarioFailed):
        run_file(file, rewrite=True, export=tmp_path / "out")
    assert verify(LocalDirectory(tmp_path / "out"), CLUSTER_ID).is_sound
    assert lines(tmp_path / "out", "ctl")


def test_a_trace_holds_every_event_and_effect(tmp_path: Path) -> None:
    """Each core's steps are there with the time, in order: each input before its effects."""
    traced: list[str] = []
    file = tmp_path / "story.scenario"
    file.write_text("strandline-scenario 1\nnodes A B\ntopic lines replicas=A,B\nproduce A m0\nstabilize\n")
    run_file(file, rewrite=True, trace=traced.append)
    kinds = [line.partition(": ")[2].partition("(")[0] for line in traced if " A: " in line]

    assert kinds.index("ProduceArrived") < kinds.index("Append") < kinds.index("LogFlushed")
    assert kinds.count("FetchArrived") == 2
    assert {"Registered", "MetadataArrived", "OpenLog", "LogOpened", "Flush", "AnswerFetch", "AnswerProduce"} <= set(
        kinds
    )
    assert {line.split()[1] for line in traced} == {"A:", "B:", "ctl:"}
    assert all(line[:7].strip().isdecimal() for line in traced)
