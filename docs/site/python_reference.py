# SPDX-License-Identifier: BSD-3-Clause
"""What the Python reference is made of: the stubs of the compiled module, with what each class and function says of itself
in help(): `python_reference.py PACKAGE OUT`. The module has to be found by import."""

import ast
import inspect
import sys
from pathlib import Path

import tutti


def document(body: list, owner, names: str) -> None:
    """Gives each definition the text of the real thing, if that has one of its own."""
    for node in body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) or ast.get_docstring(node):
            continue
        found = getattr(owner, node.name, None)
        text = getattr(found, "__doc__", None)
        bases = getattr(found, "__mro__", (None,))[1:]
        if text and not node.name.startswith("__") and all(text != base.__doc__ for base in bases):
            node.body.insert(0, ast.Expr(ast.Constant(inspect.cleandoc(text))))
        if isinstance(node, ast.ClassDef):
            if not ast.get_docstring(node):  # else the page would show that of a base
                node.body.insert(0, ast.Expr(ast.Constant(" ")))
            document(node.body, found, f"{names}{node.name}.")


def main(package: Path, out: Path) -> None:
    """One file: what the package says of itself, then what is in it."""
    stubs = ast.parse((package / "_tutti.pyi").read_text(encoding="utf-8"))
    about = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    stubs.body[0] = ast.Expr(ast.Constant(about))
    document(stubs.body[1:], tutti, "")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(ast.unparse(stubs), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
