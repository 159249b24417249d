"""The tests are tested: each required bug of the protocol, swapped into the cores, is caught by its cheapest layer.

`make test-deep WHAT=mutants` runs all three layers on all mutants; its last result is in `docs/mutants.json`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mutants import drawn, record, scenario_layer
from mutants.examination import Bite, Bounds, Examined, examine
from mutants.mutant import Layer, Mutant, Real, Swap, Verdict
from mutants.record import MUTANTS, REQUIRED
from mutants.scenario_layer import Story, play

from strandline.core.log import high_watermark
from strandline.core.log.replica_log import ReplicaLog
from strandline_sim.runs.run import run_seed

BOUNDED = Bounds(all_scenarios=False, seeds=12, seed_s=10.0, search_s=10.0)

STORY = """strandline-scenario 1
nodes A B
topic lines replicas=A,B min-isr=2
produce A m0
{claim}
stabilize 1s
expect-hw A=1
"""


def _mutant(*swaps: Swap, number: str = "99") -> Mutant:
    return Mutant(number=number, name="made up", broken="A rule of this test.", source="here", swaps=swaps)


def _reported(claim: str = "") -> Story:
    """A scenario whose output is right under the real rules, and its form without claims."""
    text = scenario_layer.run_text(STORY.format(claim=claim), "reported", compare=False).text()
    return Story("reported", text, "\n".join("#" if line.startswith("expect-") else line for line in text.split("\n")))


def _seams() -> dict[tuple[str, str], Any]:
    """Every rule that some mutant swaps, as it is now, in the class or module that holds it."""
    swaps = [swap for mutant in record.with_pairs() for swap in mutant.swaps]
    return {(swap.place, swap.name): swap.real() for swap in swaps}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "mutant",
    [m for m in MUTANTS if m.is_required and Layer.SCENARIOS in m.layers],
    ids=lambda m: f"{m.number}-{m.name}",
)
def test_a_required_bug_is_killed_by_its_cheapest_layer(mutant: Mutant) -> None:
    """A required bug's own scenario catches it, and its swapped rule decided differently from the right one."""
    found = examine(mutant, BOUNDED, [Layer.SCENARIOS])

    assert any(bite.differed for bite in found.bites), found.bites
    assert found.kills, found.verdicts


@pytest.mark.timeout(300)
def test_every_mutant_fits_the_rule_that_it_replaces() -> None:
    """No mutant fails by an error of its own in its scenario, as one of a rule that was changed since does."""
    errors = {}
    for mutant in [each for each in record.with_pairs() if each.scenario and not each.is_required]:
        reported = scenario_layer.story(mutant.scenario)
        assert reported is not None
        with mutant.applied():
            try:
                play(reported)
            except (AttributeError, NameError, TypeError) as error:
                errors[mutant.number] = str(error)

    assert errors == {}


_JUDGED_BY_TESTS = """
from mutants.record import MUTANTS
from mutants.examination import Bounds, examine
from mutants.mutant import Layer
for mutant in MUTANTS:
    if Layer.SCENARIOS not in mutant.layers:
        found = examine(mutant, Bounds(), [Layer.TESTS])
        differed = any(bite.differed for bite in found.bites)
        print(mutant.number, differed, *(kill.is_by_property or not mutant.is_required for kill in found.kills))
"""


@pytest.mark.timeout(300)  # Half a minute of work, on a machine that has other work.
def test_bugs_that_no_scenario_reaches_are_killed_by_unit_tests() -> None:
    """Bugs of consumer groups: the tests that each names catch it, and a required one by a property."""
    done = subprocess.run(
        [sys.executable, "-c", _JUDGED_BY_TESTS],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    expected = [mutant.number for mutant in MUTANTS if Layer.SCENARIOS not in mutant.layers]
    assert expected
    assert done.stdout.splitlines() == [f"{number} True True" for number in expected]


def test_the_required_bugs_have_mutants() -> None:
    """No required bug is missing, nor one of 13 to 26, and no number is given twice."""
    numbers = [mutant.number for mutant in record.with_pairs()]

    assert set(REQUIRED) == {mutant.bug for mutant in MUTANTS if mutant.is_required}
    assert [str(n) for n in range(13, 27) if str(n) not in numbers] == []
    assert len(set(numbers)) == len(numbers)


def test_the_real_rules_survive() -> None:
    """A mutant with the right answers is not killed, so the others are killed by their bug."""

    def right(real: Real, *given: Any, **named: Any) -> Any:
        return real(*given, **named)

    bounds, layers = Bounds(seeds=2), [Layer.SCENARIOS, Layer.SEEDS]
    found = examine(_mutant(Swap(high_watermark, "candidate", right)), bounds, layers)

    assert found.is_bitten
    assert [bite.differed for bite in found.bites] == [0]
    assert found.kills == ()


_JUDGED = """
from contextlib import nullcontext
from mutants import unit_test_layer
from mutants.record import MUTANTS
mutant = next(each for each in MUTANTS if each.number == "111")
for life in (nullcontext(), mutant.applied(), nullcontext()):
    with life:
        print(unit_test_layer.judge(mutant.tests).where or "survives")
"""


def test_a_unit_test_that_a_mutant_names_kills_it_and_nothing_else() -> None:
    """Under the wrong rule one of its tests fails; under the right one, before and after, all of them pass."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", _JUDGED], env=environment, capture_output=True, text=True, timeout=100, check=True
    )

    assert [line.partition("[")[0] for line in done.stdout.splitlines()] == [
        "survives",
        "test_store_age.py::test_a_claim_without_a_proof_stops_nobody_else",
        "survives",
    ]


def test_no_mutant_leaks() -> None:
    """After each mutant, also after one that ends in an exception, every rule is the original object."""
    before = _seams()
    for mutant in record.with_pairs():
        with pytest.raises(KeyError), mutant.applied():
            raise KeyError(mutant.number)
        assert all(_seams()[seam] is rule for seam, rule in before.items()), mutant.number


def test_every_swap_takes_hold() -> None:
    """Inside the block each named rule is another object than before."""
    for mutant in record.with_pairs():
        before = [swap.real() for swap in mutant.swaps]
        with mutant.applied():
            assert [swap.place for swap, rule in zip(mutant.swaps, before, strict=True) if swap.real() is rule] == []


def test_a_function_is_swapped_under_every_name() -> None:
    """A module that imported a rule by name also gets the wrong one, and the right one back."""
    home, borrower = ModuleType("strandline.core.home"), ModuleType("strandline.core.borrower")
    home.rule = borrower.rule = lambda: "right"  # type: ignore[attr-defined]
    sys.modules |= {module.__name__: module for module in (home, borrower)}
    try:
        with _mutant(Swap(home, "rule", lambda real: "wrong")).applied():
            inside = (home.rule(), borrower.rule())
    finally:
        for module in (home, borrower):
            del sys.modules[module.__name__]

    assert inside == ("wrong", "wrong")
    assert (home.rule(), borrower.rule()) == ("right", "right")


def test_a_swap_counts_its_bites() -> None:
    """Calls are counted, and among them those whose result differs from the right rule's."""
    with _mutant(Swap(ReplicaLog, "vote", lambda real, log: log.leo)).applied() as (vote,):
        run_seed(0)

    assert vote.asked > vote.differed > 0


def test_a_rule_that_is_never_asked_is_a_complaint() -> None:
    """A mutant that never changes a result proves nothing, killed or not."""
    never = Examined(
        number="R1",
        verdicts=(Verdict(layer=Layer.SEEDS, killed_by="I5"),),
        bites=(Bite(rule="nowhere.rule", asked=0, differed=0),),
    )

    assert any("never asked" in complaint for complaint in record.judge([never]).complaints)


def test_other_output_is_no_kill() -> None:
    """A rule that only changes what is printed does not break the scenario, and the difference is detected."""
    with _mutant(Swap(ReplicaLog, "expose_hw", lambda real, log: real(log), pure=False)).applied():
        same = play(_reported())
    reported = _reported()
    reworded = Story(reported.name, reported.text, reported.commands.replace("leo 0->1", "leo 0->7"))

    assert not same.differs
    assert play(reworded).differs
    assert play(reworded).killed_by == ""


def test_a_broken_property_kills_though_no_claim_is_made() -> None:
    """The property is named, with the line of the command that broke it."""
    story = _reported()
    with _mutant(Swap(high_watermark, "candidate", lambda real, vote, *_, **__: vote)).applied():
        played = play(story)

    assert played.killed_by in {"I3", "I4", "I5"}
    assert story.text.splitlines()[played.line - 1].startswith("produce")


def test_a_story_of_loss_is_not_asked() -> None:
    """Scenarios that show what a historic rule loses break properties without any mutant, and are left out."""
    names = {story.name for story in scenario_layer.stories()}

    assert "tr01_high_watermark.scenario" not in names
    assert {f"{mutant.scenario}.scenario" for mutant in MUTANTS if mutant.scenario} <= names


def test_a_claim_alone_does_not_kill_a_required_bug() -> None:
    """For a required bug some layer must name a property; for the others a claim is enough."""
    claim = Verdict(layer=Layer.SCENARIOS, killed_by="expect-hw")
    found = [Examined(number=number, verdicts=(claim,), bites=()) for number in ("R1", "13")]

    assert [complaint.split()[0] for complaint in record.judge(found).complaints] == ["R1"]


def test_a_masked_mutant_needs_a_dead_pair() -> None:
    """Removed one by one two defences may hide each other; removed together the bug must show."""
    survives, killed = Verdict(layer=Layer.SEEDS), Verdict(layer=Layer.SEEDS, killed_by="I11")
    alone = Examined(number="19", verdicts=(survives,), bites=())
    with_dead = [alone, Examined(number="18+19", verdicts=(killed,), bites=())]
    with_living = [alone, Examined(number="18+19", verdicts=(survives,), bites=())]

    assert record.judge(with_dead).complaints == ()
    assert record.judge(with_living).complaints != ()


def test_the_search_ends_at_the_first_property_that_breaks() -> None:
    """A bug that the model can reach is found in the smallest world that shows it, without a complete search."""
    (mutant,) = (mutant for mutant in MUTANTS if mutant.number == "R1")
    found = examine(mutant, BOUNDED, [Layer.SEARCH])

    assert [kill.killed_by for kill in found.kills] == ["I3"]
    assert "2 replicas, 1 records" in found.kills[0].where


def test_what_was_found_covers_every_mutant() -> None:
    """The last run covered all mutants, killed the required ones, and left none unexplained."""
    rows = {row["number"]: row for row in json.loads(record.JSON.read_text(encoding="utf-8"))["mutants"]}

    assert list(rows) == [mutant.number for mutant in record.with_pairs()]
    assert [number for number, row in rows.items() if row["required"] and not row["killed"]] == []
    assert [
        n for n, row in rows.items() if not row["killed"] and not (row["pair"] and rows[row["pair"]]["killed"])
    ] == []


# The forty drawn mutants.

DRAWN = json.loads(drawn.LIST.read_text())


def test_the_lines_of_each_mutant_are_in_the_tree() -> None:
    """A change of such a line changes the list too, or its mutant could not be judged again."""
    assert [each["number"] for each in DRAWN if _text(each["file"]).count(each["before"] + "\n") != 1] == []


def test_each_mutant_is_killed_or_changes_nothing() -> None:
    """The list names the test that kills it, which exists, or the reason why no test can."""
    alive = [each["number"] for each in DRAWN if each["now"] == drawn.SURVIVES and not each.get("equivalent")]
    killers = [(each["tests"], each["now"]) for each in DRAWN if "::" in each["now"]]
    lost = [f"{folder}/{name}" for folder, name in killers if not _has(folder, name)]

    assert alive == []
    assert lost == []
    assert len(DRAWN) == 40


def _has(folder: str, name: str) -> bool:
    file, _, test = name.partition("::")
    return f"def {test.partition('[')[0]}(" in _text(f"{folder}/{file}")


def _text(path: str) -> str:
    return (drawn.ROOT / path).read_text()
