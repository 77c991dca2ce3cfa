# SPDX-License-Identifier: BSD-3-Clause
"""Writes the stubs (.pyi) of what is compiled: `stubs.py FOLDER` for the package tutti_torch in FOLDER. The types are
those that pybind11 puts at the head of each function's documentation."""

import importlib
import inspect
import re
import sys
from pathlib import Path

HEAD = """# SPDX-License-Identifier: BSD-3-Clause
# Written by bindings/torch/stubs.py.
import collections.abc
import datetime
import typing
from enum import Enum
from typing import Any, Callable, SupportsFloat, SupportsIndex, SupportsInt

import torch
"""
KEPT = ("__init__", "__len__", "__eq__", "__hash__", "__enter__", "__exit__")


def plain(kind: str) -> str:
    """A type's name without the package's modules; what Python does not know is Any."""
    kind = re.sub(r"\btutti_torch\.(_C|comms)(\.comms|\.hooks(\.\w+)?)?\.", "", kind.strip())
    return "Any" if "::" in kind or "capsule" in kind else kind


def parts_of(text: str) -> list:
    """The arguments between two parentheses."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "[({<") - (letter in "])}>")
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def argument(part: str) -> str:
    name, _, rest = part.partition(":")
    kind, has_default, _ = rest.partition(" = ")
    if name == "self" or not rest:
        return part if part.startswith("*") else name
    return f"{name}: {plain(kind)}{' = ...' if has_default else ''}"


def of_python(function, name: str) -> str:
    words = []
    for each in inspect.signature(function).parameters.values():
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else " = ..."
        words.append("self" if each.name == "self" else f"{stars}{each.name}: Any{default}")
    return f"def {name}({', '.join(words)}) -> Any: ..."


def of_function(function, name: str) -> str:
    """What pybind11 says of it, or its signature where it is Python's."""
    head = (getattr(function, "__doc__", None) or "").splitlines()[:1]
    found = re.match(rf"{re.escape(name)}\((.*)\) -> (.*)$", head[0]) if head else None
    if not found:
        return of_python(function, name)
    return f"def {name}({', '.join(map(argument, parts_of(found[1])))}) -> {plain(found[2])}: ..."


def of_property(found: property, name: str) -> list:
    said = re.search(r"-> (.*)", (found.fget.__doc__ or "").split("\n")[0])
    kind = plain(said[1]) if said else "Any"
    return [f"{name}: {kind}"] if found.fset else ["@property", f"def {name}(self) -> {kind}: ..."]


def of_class(cls: type, own: set) -> list:
    if hasattr(cls, "__members__"):
        return [f"class {cls.__name__}(Enum):", *(f"    {name}: int" for name in cls.__members__), ""]
    bases = [base.__name__ for base in cls.__bases__ if base in own]
    lines = [f"class {cls.__name__}{f'({bases[0]})' if bases else ''}:"]
    for name, found in vars(cls).items():
        said = (getattr(found, "__doc__", None) or "").startswith(f"{name}(")
        if name.startswith("_") and not (name in KEPT and said):
            continue
        if isinstance(found, property):
            lines += ["    " + line for line in of_property(found, name)]
        elif isinstance(found, staticmethod):
            lines += ["    @staticmethod", "    " + of_function(found.__func__, name)]
        elif callable(found):
            lines.append("    " + of_function(found, name))
        elif isinstance(found, cls):
            lines.append(f"    {name}: {cls.__name__}")
    return [*lines, ""] if len(lines) > 1 else [lines[0] + " ..."]


def stub(module, names: list, more: str = "") -> str:
    """The stub of these names of a module."""
    found = {name: getattr(module, name) for name in names}
    own = {each for each in found.values() if isinstance(each, type)}
    lines = [HEAD + more]
    for name, each in found.items():
        lines += of_class(each, own) if isinstance(each, type) else [of_function(each, name)] if callable(each) else []
    return "\n".join(lines) + "\n"


def stubs() -> dict:
    """By the files' names in the package."""
    comms = importlib.import_module("tutti_torch.comms")
    clog, fr = (importlib.import_module(f"tutti_torch.comms.hooks.{name}") for name in ("clog", "fr"))

    names = [name for name in comms.__all__ if name not in ("InitHandle", "Timeout")]
    more = "\nInitHandle = str\n\nclass Timeout(datetime.timedelta): ...\n"
    internal = ["_hints", "_is_backend_registered"]
    return {
        "comms/__init__.pyi": stub(comms, [*names, *internal], more),
        "comms/hooks/clog.pyi": stub(clog, ["clog"], "\nfrom .. import TorchComm\n"),
        "comms/hooks/fr.pyi": stub(fr, ["FlightRecorderHook"], "\nfrom .. import TorchComm\n"),
    }


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    for file, text in stubs().items():
        (Path(sys.argv[1]) / "tutti_torch" / file).write_text(text)
