"""What a user of the client needs comes from `strandline.client` alone."""

from __future__ import annotations

import builtins
import inspect
import re
import typing

import strandline.client as client

_NAMES = re.compile(r"^    ([A-Z]\w+(?:, [A-Z]\w+)*):", re.MULTILINE)
_NOT_MADE_BY_USERS = {"OutgoingBatch"}
"""Parameters of constructors that only the client itself calls."""


def named_types(annotation: object) -> set[type]:
    """The project's own types in an annotation, those inside of unions, lists and callables too."""
    found = {annotation} if isinstance(annotation, type) and annotation.__module__.startswith("strandline") else set()
    for inner in typing.get_args(annotation):
        for one in inner if isinstance(inner, list) else [inner]:
            found |= named_types(one)
    return found


def public_functions(cls: type) -> list[typing.Any]:
    """The constructor and every public method and property of a class."""
    members = [member for name, member in inspect.getmembers(cls) if not name.startswith("_") or name == "__init__"]
    functions = [member.fget if isinstance(member, property) else member for member in members]
    return [function for function in functions if inspect.isfunction(function)]


def exported() -> list[type]:
    """Every class that the package exports."""
    return [value for name in client.__all__ if inspect.isclass(value := getattr(client, name))]


def test_every_type_that_users_meet_is_exported() -> None:
    """Every type that the exported classes take, return or hold can be imported from the same package."""
    met: set[type] = set()
    for cls in exported():
        for owner in (cls, *public_functions(cls)):
            for hint in typing.get_type_hints(owner).values():
                met |= named_types(hint)

    assert {cls.__name__ for cls in met} - set(client.__all__) - _NOT_MADE_BY_USERS == set()


def test_every_error_that_users_catch_is_exported() -> None:
    """Each exception that a docstring of an exported class names under "Raises" is exported or Python's own."""
    raised: set[str] = set()
    for cls in exported():
        for function in public_functions(cls):
            _, _, section = (inspect.getdoc(function) or "").partition("Raises:\n")
            for names in _NAMES.findall(section):
                raised |= set(names.split(", "))
    own = {name for name in raised if not hasattr(builtins, name)}

    assert {"Refused", "SendFailed"} <= raised
    assert own - set(client.__all__) == set()
