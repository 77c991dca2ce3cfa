# SPDX-License-Identifier: BSD-3-Clause
"""What has to be so before the compiled part of the package can be loaded, checked one by one: loading it without would
end in a sentence of the dynamic linker, or in none."""

import importlib.machinery
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
REBUILD = "build it for this environment with `pip install .` in the clone of tutti"


def library() -> str:
    """libtutti: this package's own, else that of the wheel tutti, which is beside it; "" where there is none."""
    for folder in (os.path.join(FOLDER, "lib"), os.path.join(os.path.dirname(FOLDER), "tutti", "lib")):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            if name.startswith("libtutti.so."):
                return os.path.join(folder, name)
    return ""


def build_info() -> dict:
    """What this package was built from and for: version, torch, python, library."""
    from . import _build

    return {
        "version": _build.VERSION,
        "torch": _build.TORCH,
        "python": _build.PYTHON,
        "cxx11_abi": _build.CXX11_ABI,
        "library": library(),
    }


def minor(version: str) -> str:
    """"2.13.0+cpu" -> "2.13": the versions among which torch's C++ classes do not change."""
    return ".".join(version.split("+")[0].split(".")[:2])


def check(torch_version: str) -> None:
    """Raises ImportError, saying what to do, unless the compiled part is there and fits this torch."""
    if not os.path.exists(os.path.join(FOLDER, "_build.py")):
        raise ImportError(f"tutti_torch in {FOLDER} is not built: run `pip install .` in the clone of tutti, and "
                          "import the package that this installs")
    info = build_info()
    if minor(info["torch"]) != minor(torch_version):
        raise ImportError(f"tutti_torch was built for torch {info['torch']}, and this is torch {torch_version}: "
                          f"{REBUILD}")
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    if not any(os.path.exists(os.path.join(FOLDER, "_C" + suffix)) for suffix in suffixes):
        raise ImportError(f"tutti_torch was built for Python {info['python']}, and this is Python "
                          f"{sys.version.split()[0]}: {REBUILD}")
