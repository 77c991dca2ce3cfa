# SPDX-License-Identifier: BSD-3-Clause
"""The stubs say what the compiled module has, name by name and parameter by parameter; and every public function of the
library is bound, or named in docs/python.md with a reason."""

import ast
import fnmatch
import inspect
import re
import subprocess
import sys
import unittest
from pathlib import Path

import ranks
from tutti import _tutti

ROOT = Path(__file__).resolve().parents[2]
STUBS = ROOT / "bindings" / "python" / "tutti" / "_tutti.pyi"


def parameters(function):
    """The parameters of a stub: (name, whether only by name, default)."""
    arguments = function.args
    plain = [argument.arg for argument in arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + [ast.unparse(one) for one in arguments.defaults]
    named = [(one.arg, True, ast.unparse(default)) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [pair for pair in [(name, False, default) for name, default in zip(plain, defaults)] + named
            if pair[0] != "self"]


def shown(function):
    """The same of the module, by inspect.signature."""
    return [(one.name, one.kind is one.KEYWORD_ONLY, None if one.default is one.empty else repr(one.default))
            for one in inspect.signature(function).parameters.values() if one.name != "self"]


def members(body):
    """Names of a class or module of the stubs, with their nodes."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found[target.id] = node
    return found


class Stubs(unittest.TestCase):
    """_tutti.pyi."""

    def setUp(self):
        self.stubs = members(ast.parse(STUBS.read_text()).body)

    def names(self, owner, stubs):
        """What both have; what one has and the other lacks is an error."""
        own = {name for name in vars(owner) if not name.startswith("_")}
        told = {name for name in stubs if not name.startswith("_") and name not in ("Buffer", "Counts", "Self")}
        self.assertEqual(told, own, getattr(owner, "__name__", owner))
        return sorted(own)

    def check_class(self, kind, node):
        stubs = members(node.body)
        if "__init__" in stubs and sys.version_info >= (3, 10):  # 3.9 tells no signatures of such types
            self.assertEqual(parameters(stubs["__init__"]), shown(kind), kind.__name__)
        for name in self.names(kind, stubs):
            member, stub = vars(kind)[name], stubs[name]
            if inspect.ismethoddescriptor(member):
                self.assertEqual(parameters(stub), shown(member), f"{kind.__name__}.{name}")

    def test_module(self):
        for name in self.names(_tutti, self.stubs):
            value, node = getattr(_tutti, name), self.stubs[name]
            if not isinstance(value, type):
                if isinstance(node, ast.FunctionDef):
                    self.assertEqual(parameters(node), shown(value), name)
            elif issubclass(value, Exception):
                bases = [base.__name__ for base in value.__bases__]
                self.assertEqual([ast.unparse(base).rpartition(".")[2] for base in node.bases], bases, name)
            elif issubclass(value, int):
                told = {key: ast.literal_eval(stub.value) for key, stub in members(node.body).items()}
                self.assertEqual(told, {one.name: one.value for one in value}, name)
            elif not issubclass(value, tuple):
                self.check_class(value, node)

    def test_documents_everything(self):
        for name, value in vars(_tutti).items():
            if name.startswith("_") or not callable(value) or (isinstance(value, type) and issubclass(value, int)):
                continue
            self.assertTrue(value.__doc__, name)


class Coverage(unittest.TestCase):
    """The exported names, what the module imports of them, and the list of those that it leaves out."""

    def test_every_public_function_is_bound_or_named(self):
        exported = set(re.findall(r"^ *(tutti_\w+);$", (ROOT / "cmake" / "libtutti.map").read_text(), re.M))
        output = subprocess.run(["nm", "-D", "--undefined-only", _tutti.__file__], stdout=subprocess.PIPE, check=True)
        bound = set(re.findall(r" U (tutti_\w+)", output.stdout.decode()))
        page = (ROOT / "docs" / "python.md").read_text().partition("## What is not there")[2]
        left_out = re.findall(r"`(tutti_[\w*]+)`", page)
        self.assertTrue(bound and left_out)
        unnamed = {name for name in exported - bound if not any(fnmatch.fnmatch(name, one) for one in left_out)}
        self.assertEqual(unnamed, set(), "neither bound nor named in docs/python.md")
        there = {one for one in left_out if fnmatch.filter(bound, one) or not fnmatch.filter(exported, one)}
        self.assertEqual(there, set(), "named in docs/python.md as left out, but bound, or not there at all")


if __name__ == "__main__":
    ranks.main()
