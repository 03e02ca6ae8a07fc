"""List every name that users reach from `lab.`, with its signature: python tests/tools/public_api.py

It writes tests/public_api.txt, which tests/project/test_public_api.py compares with the code: a change of the public
interface is made by running this script, and shows in the diff.
"""

import dataclasses
import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType

from traitlets import TraitType

import loopring_lab as lab

RECORDED = Path(__file__).parents[1] / "public_api.txt"


def public_names() -> Iterator[str]:
    """Return a line for each public name: modules, functions, classes and their public members."""
    for name in lab.__all__:
        yield from lines(f"lab.{name}", getattr(lab, name))


def lines(name: str, member) -> Iterator[str]:
    if inspect.ismodule(member):
        for inner in getattr(member, "__all__", None) or defined_in(member):
            yield from lines(f"{name}.{inner}", getattr(member, inner))
    elif inspect.isclass(member):
        yield f"{name}: class{signature(member)}"
        yield from members(name, member)
    elif callable(member):
        yield f"{name}{signature(member)}"
    else:
        yield f"{name}: {type(member).__name__}"


def defined_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, member in vars(module).items()
        if getattr(member, "__module__", "") == module.__name__
    ]


def members(name: str, owner: type) -> Iterator[str]:
    for inner, member in inspect.getmembers(owner):
        if inner.startswith("_") or not is_ours(member):
            continue
        if isinstance(member, property | cached_property):
            yield f"{name}.{inner}: property"
        elif isinstance(member, TraitType):
            yield f"{name}.{inner}: trait"
        else:
            yield f"{name}.{inner}{signature(member)}"


def is_ours(member) -> bool:
    """Tell what the package defines from what it inherits, which changes with other packages' versions."""
    if isinstance(member, TraitType):
        member = member.this_class
    if isinstance(member, property):
        member = member.fget
    if isinstance(
        member, cached_property
    ):  # names its function's module itself from Python 3.13 on
        member = member.func
    return "loopring_lab" in str(getattr(member, "__module__", ""))


def signature(member) -> str:
    """Return a signature; of annotations only those written as text, as Python versions show others differently."""
    made = (member.__init__, member.__new__) if inspect.isclass(member) else (member,)
    fields = getattr(member, "_fields", None) or sorted(
        getattr(member, "__required_keys__", ())
    )
    if fields:
        return f"({', '.join(fields)})"
    if not (any(map(is_ours, made)) or dataclasses.is_dataclass(member)):
        return ""
    found = inspect.signature(member)  # type: ignore[arg-type]
    kept = [
        one
        if isinstance(one.annotation, str)
        else one.replace(annotation=inspect.Parameter.empty)
        for one in found.parameters.values()
    ]
    returned = (
        found.return_annotation
        if isinstance(found.return_annotation, str)
        else inspect.Signature.empty
    )
    return str(found.replace(parameters=kept, return_annotation=returned))


def listing() -> str:
    return "".join(f"{line}\n" for line in sorted(set(public_names())))


if __name__ == "__main__":
    RECORDED.write_text(listing(), encoding="utf-8")
    print(
        f"{RECORDED.name}: {RECORDED.read_text(encoding='utf-8').count(chr(10))} names"
    )
