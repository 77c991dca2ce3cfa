# SPDX-License-Identifier: BSD-3-Clause
"""What the build has to know of the environment it builds for: which torch is there and where its headers and libraries
are, which Python, which compilers. Everything that may be missing is refused here, in one sentence that says how to get
it."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass

OLDEST_TORCH = (2, 6)
OLDEST_CMAKE = (3, 25)
KNOWN_TORCHCOMMS = (0, 3)  # csrc/torchcomms/torchcomms_abi.hpp, tutti_torch/torchcomms.py


class BuildError(Exception):
    """Ends the build; its text is the whole message."""


# Run by the Python of the target environment. The names in _C are those that torch tells extensions to be built with,
# so that both see one another's pybind11 types; later versions have none, since nothing is left to tell.
PROBE = r"""
import json, os, sys
try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch": raise
    sys.exit(3)
pybind = {name: getattr(torch._C, "_PYBIND11_" + name, None) for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")}
try:
    from importlib import metadata, util
    (folder,) = util.find_spec("torchcomms").submodule_search_locations
    comms = {"version": metadata.version("torchcomms"), "root": folder}
except Exception:
    comms = {}
print(json.dumps({
    "comms": comms,
    "version": torch.__version__,
    "root": os.path.dirname(os.path.abspath(torch.__file__)),
    "cxx11_abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    "pybind": {name: value for name, value in pybind.items() if value is not None},
}))
"""


@dataclass(frozen=True)
class Facts:
    """One environment: its torch, its Python, and the tools to build with."""

    torch_version: str
    torch_root: str
    cxx11_abi: bool
    pybind: dict
    torchcomms_version: str  # "": the plug-in for it is not built
    torchcomms_library: str
    python_include: str
    python_suffix: str
    python_tag: str
    cmake: str
    ninja: str  # "": make is used
    environment: dict  # in which these two run


def version_pair(version: str) -> tuple:
    """"2.13.0+cpu" -> (2, 13)"""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def probe(environment: dict) -> "dict | None":
    """What PROBE prints there; None where there is no torch."""
    # An extension that torch loads by itself (this one, of another torch) must not keep it from being asked.
    environment = {**environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    answer = subprocess.run([sys.executable, "-c", PROBE], env=environment, cwd="/", stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if answer.returncode == 3:
        return None
    if answer.returncode != 0:
        reason = (answer.stderr.strip().splitlines() or [f"exit status {answer.returncode}"])[-1]
        raise BuildError(f"the torch of {sys.executable} can not be imported: {reason}")
    return json.loads(answer.stdout.splitlines()[-1])


def environments() -> list:
    """This process's variables, and those without two with which pip hides, while it builds in isolation, all that is
    installed: torch, but also a cmake or ninja that was installed with pip."""
    hidden = ("PYTHONPATH", "PYTHONNOUSERSITE")
    return [dict(os.environ), {name: value for name, value in os.environ.items() if name not in hidden}]


def find_torch() -> dict:
    torch = next(filter(None, map(probe, environments())), None)
    if torch is None:
        raise BuildError(f"there is no torch in the environment of {sys.executable}: install torch first, and where "
                         "the installer builds in an environment of its own, add --no-build-isolation")
    if version_pair(torch["version"]) < OLDEST_TORCH:
        raise BuildError(f"torch {torch['version']} is too old: tutti needs torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} "
                         "or later")
    if not os.path.exists(os.path.join(torch["root"], "include/torch/csrc/distributed/c10d/Backend.hpp")):
        raise BuildError(f"the torch in {torch['root']} comes without its C++ headers: install one that has them")
    return torch


def find_torchcomms(found: dict) -> tuple:
    """Version and library of the torchcomms that the plug-in is for; two empty strings where there is none, or another
    one: PyPI has a package without content under the name."""
    version, library = found.get("version", ""), os.path.join(found.get("root", ""), "libtorchcomms.so")
    if not version or not os.path.exists(library):
        return "", ""
    if version_pair(version) != KNOWN_TORCHCOMMS:
        known = ".".join(map(str, KNOWN_TORCHCOMMS))
        print(f"tutti: torchcomms {version} is here, and the plug-in is for {known}: it is left out", flush=True)
        return "", ""
    return version, library


def find_tool(names: list, package: str, what: str) -> str:
    """The first of these programs; those beside this Python (installed with pip) count."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return found
    raise BuildError(f"{what} is missing: install it (Debian: apt-get install {package})")


def find_compiler(variable: str, names: list, package: str, what: str) -> str:
    """The one that the variable names, as CMake would take it ("ccache g++" too), or the first of these."""
    named = os.environ.get(variable, "").split()
    if named and not shutil.which(named[0]):
        raise BuildError(f"{variable} names {named[0]}, which is not there")
    return named[0] if named else find_tool(names, package, what)


def version_of(program: str, environment: dict) -> tuple:
    """What it answers to --version; () when it does not run."""
    answer = subprocess.run([program, "--version"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True)
    return version_pair(answer.stdout.partition("\n")[0]) if answer.returncode == 0 else ()


def find_cmake() -> tuple:
    """CMake, and the variables with which it runs."""
    cmake = find_tool(["cmake"], "cmake", "CMake")
    found = [(version_of(cmake, one), one) for one in environments()]
    version, environment = next(filter(lambda pair: pair[0], found), found[0])
    if version < OLDEST_CMAKE:
        raise BuildError(f"{cmake} is version {'.'.join(map(str, version)) or 'unknown'}, and "
                         f"{OLDEST_CMAKE[0]}.{OLDEST_CMAKE[1]} is the oldest that can build tutti: pip install cmake")
    return cmake, environment


def find_ninja(environment: dict) -> str:
    """ninja, or "" when make has to do."""
    try:
        ninja = find_tool(["ninja", "ninja-build"], "ninja-build", "Ninja")
        if version_of(ninja, environment):
            return ninja
    except BuildError:
        pass
    find_tool(["make", "gmake"], "ninja-build", "Ninja (or make)")
    return ""


def python_tag() -> str:
    """"cp311-cp311-linux_x86_64"; a build without the GIL or for debugging has its letters behind the second number."""
    number = f"cp{sys.version_info.major}{sys.version_info.minor}"
    flags = sysconfig.get_config_var("ABIFLAGS") or ""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"{number}-{number}{flags}-{platform}"


def gather() -> Facts:
    """All facts, or BuildError for the first that is missing: the cheapest to find out comes first."""
    if sys.implementation.name != "cpython" or not sys.platform.startswith("linux"):
        raise BuildError(f"tutti's PyTorch backend is built for CPython on Linux, not for {sys.implementation.name} on "
                         f"{sys.platform}")
    find_compiler("CC", ["cc", "gcc", "clang"], "gcc", "a C compiler")
    find_compiler("CXX", ["c++", "g++", "clang++"], "g++", "a C++ compiler")
    cmake, environment = find_cmake()
    ninja = find_ninja(environment)
    include = sysconfig.get_path("include")
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise BuildError(f"Python's headers are missing ({include}/Python.h): install them "
                         f"(Debian: apt-get install python{sys.version_info.major}-dev)")
    torch = find_torch()
    torchcomms_version, torchcomms_library = find_torchcomms(torch["comms"])
    return Facts(torch_version=torch["version"], torch_root=torch["root"], cxx11_abi=torch["cxx11_abi"],
                 pybind=torch["pybind"], torchcomms_version=torchcomms_version,
                 torchcomms_library=torchcomms_library, python_include=include,
                 python_suffix=sysconfig.get_config_var("EXT_SUFFIX"), python_tag=python_tag(), cmake=cmake,
                 ninja=ninja, environment=environment)
