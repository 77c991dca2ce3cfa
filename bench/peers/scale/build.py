# SPDX-License-Identifier: BSD-3-Clause
"""Builds what bench/gpu_scale.sh runs, in one tree and once: the library with kernels for the GPUs that are there, the
command, the contract suite, and the PyTorch package. `python3 -m peers.scale.build FOLDER`; FOLDER/built.json tells."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..programs import ROOT

TARGETS = ["tutti", "tutti_command", "test_cuda_contract"]
STANDIN = ["cuda_standin"]


def source() -> str:
    """The commit, and a number for what was changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, errors="replace").stdout

    try:
        commit, changes = git("rev-parse", "--short", "HEAD").strip(), git("diff", "HEAD")
    except OSError:
        commit = changes = ""
    digest = hashlib.sha256(changes.encode(errors="replace")).hexdigest()[:8]
    return (commit or "unknown commit") + (f" with changes {digest}" if changes else "")


def torch_facts(backend):
    """What the PyTorch package is built for; or why it is not."""
    try:
        return backend.gather(), ""
    except backend.BuildError as reason:
        return None, str(reason)


def settings_for(backend, facts) -> dict:
    settings = {
        "CMAKE_BUILD_TYPE": "Release",
        "TUTTI_BUILD_EXAMPLES": "OFF",
        "TUTTI_CUDA_ARCHITECTURES": "native",
    }
    return {**settings, **(backend.torch_settings(facts) if facts else {"TUTTI_TORCH_ROOT": ""})}


def nccl_of(facts) -> str | None:
    """PyTorch's, which lies where no loader looks."""
    path = Path(facts.torch_root).parent / "nvidia" / "nccl" / "lib" / "libnccl.so.2" if facts else None
    return str(path) if path and path.exists() else None


def pack(backend, facts, tree: Path) -> None:
    """The package as a folder for PYTHONPATH, with the entry point that `import torch` loads it by."""
    built = backend.built_files(facts, tree, backend.fingerprint())
    files = {**backend.python_files(), **built, **backend.dist_info(facts)}
    shutil.rmtree(tree / "python", ignore_errors=True)
    for name, content in files.items():
        path = tree / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run(command: list[str]) -> bool:
    print("+ " + " ".join(command), flush=True)
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0


def main() -> int:
    sys.path.insert(0, str(ROOT / "bindings" / "torch"))
    import build_backend as backend

    tree, built_from = Path(sys.argv[1]), source()
    tree.mkdir(parents=True, exist_ok=True)
    (tree / "built.json").unlink(missing_ok=True)
    facts, why = torch_facts(backend)
    definitions = [f"-D{name}={value}" for name, value in settings_for(backend, facts).items()]
    cmake = facts.cmake if facts else "cmake"
    generator = []
    if not (tree / "CMakeCache.txt").exists():
        generator = ["-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles"]
    if not run([cmake, "-S", str(ROOT), "-B", str(tree), *generator, *definitions]):
        return 1
    targets = TARGETS + (STANDIN if os.environ.get("TUTTI_CUDA_DRIVER") else [])
    make = [cmake, "--build", str(tree), "-j", str(len(os.sched_getaffinity(0))), "--target"]
    if facts and not run([*make, *targets, "tutti_torch"]):
        facts, why = None, "the PyTorch package can not be built"
    if not facts and not run([*make, *targets]):
        return 1
    if facts:
        pack(backend, facts, tree)
    built = {"torch": facts.torch_version if facts else None, "without_torch": why, "nccl": nccl_of(facts)}
    built["source"] = built_from
    (tree / "built.json").write_text(json.dumps(built))
    return 0


if __name__ == "__main__":
    sys.exit(main())
