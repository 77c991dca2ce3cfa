# SPDX-License-Identifier: BSD-3-Clause
"""Runs PyTorch's distributed_test on tutti and on gloo with 2, 3 and 4 ranks and writes what came of it to
docs/compatibility.md; with --check the page stays as it is and has to agree. Fails when a test that passes with gloo
does not pass with tutti."""

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import lifts

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE = os.path.normpath(os.path.join(HERE, "../../../docs/compatibility.md"))
BACKENDS, SIZES = ("tutti", "gloo"), (2, 3, 4)
OUTCOMES = ("passed", "failed", "skipped")
NEXT = "\n<!-- Written by tests/torch/torchcomms_suite.py. -->"  # what follows on the page is not ours

# Why a test is skipped, in plain words; the suite's own words where none of these fits.
WHY = (
    (r"^Need at least (\d) CUDA devices?$", r"needs \1 CUDA devices"),
    (r"^CUDA is not available\.$", "needs CUDA devices"),
    (r"^(NCCL (Batch )?Send Recv Only|Only N(CCL|ccl) supports CUDA all_to_all(_single)?)$", "needs CUDA devices"),
    (r"^Only NCCL backend supports high priority stream$", "an option of NCCL"),
    (r"^Test requires backend tutti to be one of \{'nccl'\}$", "needs CUDA devices"),
    (r"^Skipped due to small world size\.$", "needs 3 ranks"),
    (r"^Test requires (?:an exact )?world size of (\d)$", r"needs \1 ranks"),
    (r"^no torchvision$", "needs torchvision and CUDA devices"),
    (r"^(?:Test is failing, see )?(https://github\.com/\S+)$", r"switched off by PyTorch: \1"),
    (r"^Skipped due to flakiness$", "switched off by PyTorch: unsteady"),
)


def why(reason: str) -> str:
    for pattern, words in WHY:
        match = re.match(pattern, reason)
        if match:
            return match.expand(words)
    return reason


def measure(backend: str, size: int, folder: str, names: tuple = ()) -> dict:
    """What suite.py found of these tests, or of all: `tests` with the outcome and reason of each, `lifted` with those
    whose skip for a name it lifted. A result that the folder has already is taken as it is."""
    out = os.path.join(folder, f"{backend}{size}.json")
    if not os.path.exists(out):
        print(f"== {backend}, {size} ranks", flush=True)
        command = [sys.executable, os.path.join(HERE, "suite.py"), "--backend", backend, "--size", str(size)]
        log = os.path.join(folder, f"{backend}{size}.log")
        ended = subprocess.run([*command, "--json", out, "--log", log, *names])
        if not os.path.exists(out):
            raise SystemExit(f"{backend}, {size} ranks: the suite ended with {ended.returncode} and without a result")
    with open(out) as file:
        return json.load(file)


def regressions(results: dict) -> list:
    """What passes with gloo and not with tutti, with the reason."""
    return [f"{name}, {size} ranks: {outcome}: {reason}"
            for size in SIZES
            for name, (outcome, reason) in results["tutti", size].items()
            if results["gloo", size][name][0] == "passed" != outcome]


def row(*cells) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(*heads) -> list:
    return [row(*heads), row(*("---" for _ in heads))]


def summary(results: dict) -> list:
    lines = table("ranks", "backend", *OUTCOMES)
    for size in SIZES:
        for backend in BACKENDS:
            counts = collections.Counter(outcome for outcome, _ in results[backend, size].values())
            lines.append(row(size, backend, *(counts[outcome] for outcome in OUTCOMES)))
    return lines


def differing(results: dict) -> list:
    """Tests whose outcome is not the same with both backends."""
    lines = table("test", *(f"{size} ranks: {backend}" for size in SIZES for backend in BACKENDS), "gloo's reason")
    for name in results["tutti", SIZES[0]]:
        outcomes = [results[backend, size][name][0] for size in SIZES for backend in BACKENDS]
        if outcomes[::2] != outcomes[1::2]:
            reasons = dict.fromkeys(results["gloo", size][name][1] for size in SIZES)
            lines.append(row(f"`{name}`", *outcomes, "; ".join(reason for reason in reasons if reason)))
    return lines


def skipped(results: dict) -> list:
    """Tests that tutti does not run, with the numbers of ranks and the cause."""
    lines = table("test", "ranks", "why it is skipped")
    for name in results["tutti", SIZES[0]]:
        causes = collections.defaultdict(list)
        for size in SIZES:
            outcome, reason = results["tutti", size][name]
            if outcome == "skipped":
                causes[why(reason)].append(str(size))
        lines += [row(f"`{name}`", ", ".join(sizes), cause) for cause, sizes in causes.items()]
    return lines


def by_cause(results: dict) -> list:
    lines = table("why", *(f"{size} ranks" for size in SIZES))
    counts = {}
    for size in SIZES:
        causes = [why(reason) for outcome, reason in results["tutti", size].values() if outcome == "skipped"]
        kinds = [re.sub(r"needs \d CUDA", "needs CUDA", cause.split(": ")[0]) for cause in causes]
        counts[size] = collections.Counter(kinds)
    causes = sorted(set().union(*counts.values()), key=lambda cause: (-counts[SIZES[0]][cause], cause))
    return lines + [row(cause, *(counts[size][cause] for size in SIZES)) for cause in causes]


def lifted(names: dict) -> list:
    """Tests that run in spite of a list of names, by what the names stood for."""
    lines = table("what tutti has", "tests")
    for what in dict.fromkeys(what for _, what in lifts.LIFTED):
        lines.append(row(what, ", ".join(f"`{name}`" for name in sorted(names) if names[name] == what)))
    return lines


TEXT = """\
# PyTorch's own tests on tutti

<!-- Written by tests/torch/pytorch/compare.py. -->

`torch.testing._internal.distributed.distributed_test` is the suite that PyTorch runs on each of its backends: {total}
tests, inside every torch package. Below is what came of it with torch {version} on a machine without an accelerator.
To run it again:

    .venv/bin/python tests/torch/pytorch/compare.py          # both backends, 15 minutes; writes this page
    .venv/bin/python tests/torch/pytorch/suite.py --size 3   # tutti alone, 3 ranks

Every test that passes with gloo passes with tutti at the same number of ranks.

{summary}

No text of the suite is changed. For both backends the ranks are forked from a process that has imported torch (PyTorch
starts a Python for each), and tests with groups of ranks 1 and 2 run from 3 ranks on (PyTorch asks for 8).

## Skips that were for the name

Some tests are skipped because a backend's name is not in a list. Where tutti has what the name stood for, it runs them:

{lifted}

tutti is also entered in the suite's sets of backends by feature (`ddp`, `subgroup`, `gpu`, `cuda`, `plugin`) and in its
lists of backends that can be profiled.

## What differs

{differing}

## What is skipped, and why

{by_cause}

Each test:

{skipped}
"""


def page(results: dict, names: dict, version: str) -> str:
    tables = {"summary": summary(results), "lifted": lifted(names), "differing": differing(results),
              "by_cause": by_cause(results), "skipped": skipped(results)}
    return TEXT.format(total=len(results["tutti", SIZES[0]]), version=version,
                       **{name: "\n".join(lines) for name, lines in tables.items()})


def verdict(text: str, check: bool, version: str) -> list:
    """Writes the page, or says where the one that is there is out of date."""
    with open(PAGE) as file:
        old, mark, kept = file.read().partition(NEXT)
    if not check:
        with open(PAGE, "w") as file:
            file.write(text + mark + kept)
        return []
    if f"with torch {version} " not in old or old == text:
        return []
    changed = sorted(set(text.splitlines()) ^ set(old.splitlines()))
    return ["docs/compatibility.md is out of date, tests/torch/pytorch/compare.py writes it:", *changed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the page instead of writing it")
    parser.add_argument("--folder", help="keep what each run found here, and do not run what is here already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        found = {(backend, size): measure(backend, size, folder) for size in SIZES for backend in BACKENDS}
    results = {key: value["tests"] for key, value in found.items()}
    import torch

    version = torch.__version__.split("+")[0]
    text = page(results, found["tutti", SIZES[-1]]["lifted"], version)
    complaints = regressions(results)
    if not torch.accelerator.is_available():  # what the page is about
        complaints += verdict(text, arguments.check, version)
    print("\n".join(complaints or ["every test that passes with gloo passes with tutti"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
