"""What a scenario file looks like, and how a run says where it went wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from strandline.sim.scenario.language import ScenarioFailed, parse, rewritten
from strandline.sim.scenario.run import VERBS, run_text

HEAD = "strandline-scenario 1\n"
SCENE = HEAD + "nodes A B\ntopic lines replicas=A,B\n"


def scene(*commands: str) -> str:
    """Two nodes, A leads; the output of the commands is filled in, so that only what is added can fail."""
    return run_text(SCENE + "\n".join(commands) + "\n", "scene", compare=False).text()


def failure(text: str, *, compare: bool = True) -> ScenarioFailed:
    """How a scenario fails."""
    with pytest.raises(ScenarioFailed) as caught:
        run_text(text, "incident.scenario", compare=compare)
    return caught.value


# --- the form ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "nodes A\n", "strandline-scenario 2\nnodes A\n"])
def test_the_first_line_names_the_language_and_its_version(text: str) -> None:
    """A file of another kind or version is refused at line 1."""
    failed = failure(text)

    assert failed.line == 1
    assert "strandline-scenario 1" in failed.expected


def test_output_belongs_to_the_command_above_it() -> None:
    """Indented lines are the command's; a comment or an empty line ends them."""
    script = parse(HEAD + "# a story\n\nshow  # all of it\n  one\n\ttwo\n\nmessages\n", "f")

    assert [(c.line, c.words[0].text, c.expected) for c in script.commands] == [
        (4, "show", ("one", "two")),
        (8, "messages", ()),
    ]


@pytest.mark.parametrize("gap", ["", "# note\n", "\n"])
def test_output_under_no_command_is_refused(gap: str) -> None:
    """Indented text is output or nothing; it cannot stand alone."""
    with pytest.raises(ScenarioFailed) as caught:
        parse(HEAD + ("show\n" if gap else "") + gap + "  lost\n", "f")

    assert caught.value.actual == "indented text"


def test_rewriting_changes_output_and_nothing_else() -> None:
    """Comments, blanks and commands stay byte for byte; rewriting twice changes nothing more."""
    text = HEAD + "# top\n\nshow   A\n  old\n  lines\n\n# between\nmessages\n# end\n"
    script = parse(text, "f")
    once = rewritten(script, {4: ["new"], 9: ["a", "b"]})

    assert once == HEAD + "# top\n\nshow   A\n  new\n\n# between\nmessages\n  a\n  b\n# end\n"
    assert rewritten(parse(once, "f"), {}) == once
    assert rewritten(script, {}) == text


# --- what goes wrong, and where ---------------------------------------------------------------------------


def test_an_unknown_verb() -> None:
    """File, line, caret under the verb, and the verbs that begin alike."""
    failed = failure(SCENE + "delivr B->A\n", compare=False)

    assert (failed.name, failed.line, failed.actual) == ("incident.scenario", 4, "'delivr'")
    assert "deliver" in failed.expected
    assert str(failed).splitlines()[1:3] == ["    delivr B->A", "    ^"]


def test_a_missing_node() -> None:
    """The caret stands under the name, also within a list; the nodes there are are named."""
    one = failure(SCENE + "crash X\n", compare=False)
    listed = failure(SCENE + "alter A isr=A,X\n", compare=False)

    assert "a node (A, B)" in one.expected
    assert str(listed).splitlines()[2].index("^") - 4 == len("alter A isr=A,")


def test_a_claim_that_does_not_hold() -> None:
    """What was expected and what is, with the caret under the value; rewriting does not make it true."""
    failed = failure(SCENE + "expect-leo A=0 B=2\n", compare=False)

    assert (failed.expected, failed.actual) == ("the leo of B is 2", "the leo of B is 0")
    assert str(failed).splitlines()[2].index("^") - 4 == len("expect-leo A=0 B=")


def test_output_that_differs() -> None:
    """The line is that of the expected output, the caret stands at the first character that differs."""
    failed = failure(scene("produce A m0").replace("leo 0->1", "leo 0->2"))

    assert failed.line == 8
    assert (failed.expected, failed.actual) == ("A: leo 0->2", "A: leo 0->1")
    assert str(failed).splitlines()[1:3] == ["    A: leo 0->2", "    " + " " * len("A: leo 0->") + "^"]


def test_output_that_is_missing_or_too_much() -> None:
    """Fewer lines than expected and more than expected are both told."""
    text = scene("produce A m0")
    more = failure(text + "  m0: acked at 0\n")
    fewer = failure(text.replace("  m0: waits\n", ""))

    assert (more.expected, more.actual) == ("m0: acked at 0", "no more output")
    assert (fewer.expected, fewer.actual) == ("no more output", "m0: waits")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("deliver A->B", "a message on A->B"),
        ("deliver A=>B", "a link"),
        ("deliver B->A fetsch", "a kind of message"),
        ("deliver A.disk", "a commit under way on A"),
        ("tick 5", "a duration"),
        ("set truncation=fetch", "a rule before the first `nodes`"),
        ("set replica-lag-time-max-ms=1ms", "replica_fetch_wait_max_ms must be below"),
        ("nodes A", "a new name"),
        ("topic other replicas=A", "only one `topic`"),
        ("elect X", "a node (A, B)"),
        ("metadata-to A epoch=9", "metadata of epoch 9 under way to A"),
        ("wipe A", "a node that is down"),
        ("produce A", "a record"),
        ("produce A m acks=2", "one of all, 1, 0"),
        ("expect-error m0 NONE", "a call"),
        ("expect-invariant I99 holds", "all, or one of"),
        ("expect-remote B A=0", "a node that leads"),
        ("expect-log A m0", "a record and its epoch"),
        ("restart ctl lose=99", "fewer than the store's"),
        ("power-off A keep=7", "an offset from 0"),
        ("show A extra", "a node (A, B)"),
        ("produce A m0 akcs=1", "a record (letters, digits, - and _)"),
        ("produce A m0 m0", "a record that was not produced yet"),
        ("produce A m0..m3 batch=0", "a number from 1 on"),
        ("append A m0@0", "a record (letters, digits, - and _)"),
        ("append A m3..m1", "several (m0..m3)"),
        ("hold A->B B", "nothing more"),
        ("release * A->B", "nothing more"),
        ("partition A->B soon", "nothing more"),
        ("deliver B->A fetch twice", "nothing more"),
        ("drop B->A fetch loudly", "nothing more"),
        ("expect-log A =", "a node whose log shall be equal"),
    ],
)
def test_what_is_wrong_is_named(command: str, expected: str) -> None:
    """Every wrong word is answered by what could stand there."""
    failed = failure(SCENE + command + "\n", compare=False)

    assert failed.line == 4
    assert expected in failed.expected


def test_no_batch_is_left_half() -> None:
    """Damage and loss of power leave whole batches; the message names the border."""
    commands = "set durability=page-cache\nnodes A\ntopic lines replicas=A\nproduce A m0..m5 batch=3\n"
    for last in ("power-off A keep=4", "crash A\ncut-log A to=4"):
        failed = failure(HEAD + commands + last + "\n", compare=False)
        assert "an offset at which a batch begins or ends, such as 3" in failed.expected


def test_a_batch_is_one_request_of_many_records() -> None:
    """It is asked and answered once; each of its records can be named, and a reader in its middle gets all of it."""
    text = run_text(
        SCENE + "produce A m0..m9 batch=10\nstabilize\nexpect-acks m0..m9=acked@0 m7=acked@7\n"
        "expect-log B m0..m9@0\nconsume A offset=5\n",
        "f",
        compare=False,
    ).text()

    assert text.count("acked at") == 1
    assert "  m0..m9: acked at 0\n" in text
    assert "  consumer of A: fetched m0@0 m1@0 " in text


def test_every_verb_explains_itself() -> None:
    """Each verb's function says in its first line what the verb does; claims are those that begin with expect-."""
    undocumented = [name for name, verb in VERBS.items() if not name.startswith("expect-") and not verb.run.__doc__]

    assert undocumented == []
    assert {"expect-log", "expect-invariant"} <= set(VERBS)


# --- the same file, the same lines ------------------------------------------------------------------------

_PRINT = """
import sys
from strandline.sim.scenario.run import run_text
print(run_text(sys.stdin.read(), "f", compare=False).text())
"""


def test_a_run_does_not_depend_on_hashing() -> None:
    """Under another PYTHONHASHSEED a file prints the same lines."""
    commands = "nodes C\npartition A | B C ctl\ntick 10s\nheal\nstabilize 3s\nproduce A m0\nstabilize 3s\nshow\n"
    text = HEAD + "nodes A B\n" + commands.replace("partition", "topic lines replicas=A,B,C min-isr=2\npartition", 1)
    printed = [
        subprocess.run(
            [sys.executable, "-c", _PRINT],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]

    assert printed[0] == printed[1]
    assert "A: leads epoch 0" in printed[0]
