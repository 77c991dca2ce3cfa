#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tutti against the other libraries for collectives between the GPUs of one host: NCCL as it is, NCCL with registered
symmetric windows, and PyTorch's symmetric memory, one process a GPU, replayed from CUDA graphs. All run in the same
processes, in turns within each cell, and tutti's results are compared with NCCL's, bit for bit, before a cell is timed.
When a library hangs, all go on from there in fresh processes.

    bench/gpu_peers.py                                 all GPUs, all cells, a few minutes
    bench/gpu_peers.py --ops all_reduce --dtypes bfloat16 --up-to 1M
    bench/gpu_peers.py --json FILE --markdown FILE     also writes what was measured, and the tables
    bench/gpu_peers.py --report FILE                   only tells what an earlier run has left
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from peers.gpu import runs as gpu_runs
from peers.arguments import count, names, seconds, size, sizes, to_write
from peers.report import geomean, size_text, table

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ["bfloat16", "float32"]
PLACES = ["out", "in"]
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
SIZES = [256, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30]
HELD_UP = 3  # a cell whose slowest round took so many times as long as its median is named
RANGES = [("up to 256 KiB", 0, 256 << 10), ("1 to 16 MiB", 1 << 20, 16 << 20), ("above", 16 << 20 | 1, 1 << 62)]


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-n", "--ranks", type=count, help="processes (default: one a GPU)")
    add("--ops", type=names(OPERATIONS), default=OPERATIONS, help=",".join(OPERATIONS))
    add("--dtypes", type=names(DTYPES), default=DTYPES, help=",".join(DTYPES))
    add("--places", type=names(PLACES), default=PLACES, help=",".join(PLACES))
    add("--sizes", type=sizes, default=SIZES, help="1K,64K,1M")
    add("--up-to", type=size, metavar="SIZE", help="leaves out the larger ones")
    add("--calls", type=count, default=50, help="calls in a graph, fewer of large ones (default 50)")
    add("--rounds", type=count, default=7, help="replays, of which the median counts (default 7)")
    add("--seconds", type=seconds, default=400, help="begins no further cell after that (default 400)")
    add("--method", help="of tutti's own, instead of the chosen one: cuda:lines")
    add("--option", type=pair, action="append", default=[], metavar="NAME=VALUE", help="of tutti's context")
    add("--library", type=Path, default=ROOT / "build/lib/libtutti.so", help="default: build/lib/libtutti.so")
    add("--json", type=to_write, metavar="FILE", help="write what was measured, a line of JSON a cell")
    add("--markdown", type=to_write, metavar="FILE", help="write the tables")
    add("--report", type=Path, metavar="FILE", help="measure nothing, tell what this holds")
    chosen = parser.parse_args(arguments)
    chosen.sizes = [n for n in chosen.sizes if n <= (chosen.up_to or n)]
    if not chosen.sizes:
        parser.error("no size is left")
    return chosen


def pair(text: str) -> str:
    if not text.partition("=")[1]:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return text


# ---- measuring ----


def need_torch() -> None:
    if not importlib.util.find_spec("torch"):
        sys.exit(f"gpu_peers: there is no PyTorch in {sys.executable}")


def plan_of(chosen: argparse.Namespace) -> dict:
    cells = [
        (op, size, dtype, place == "in")
        for place in chosen.places
        for dtype in chosen.dtypes
        for op in chosen.ops
        for size in chosen.sizes
        if place == "out" or op not in ("all_to_all", "broadcast")  # the same calls as out of place
    ]
    cells.sort(key=lambda cell: cell[0] == "broadcast")  # last: NCCL's windows have hung in it
    return {
        "cells": cells,
        "sizes": chosen.sizes,
        "calls": chosen.calls,
        "rounds": chosen.rounds,
        "seconds": chosen.seconds,
        "method": chosen.method,
        "library": str(chosen.library.resolve()),
        "options": dict(option.split("=", 1) for option in chosen.option),
    }


def measure(chosen: argparse.Namespace, module: str = "peers.gpu.rank") -> list[dict]:
    """The lines that rank 0 prints, and those of failures, which are written as they come."""
    need_torch()
    n = chosen.ranks or int(
        subprocess.check_output([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"])
    )
    if n < 1:
        sys.exit("gpu_peers: there is no CUDA device here")
    with open(chosen.json or os.devnull, "w", buffering=1) as out:

        def tell(line: dict) -> None:
            out.write(json.dumps(line) + "\n")
            progress(line)

        return gpu_runs.Session(plan_of(chosen), n, module, tell).measure()


def progress(line: dict) -> None:
    if "op" in line:
        us = "  ".join(f"{name} {time:.2f}" for name, time in line["us"].items())
        place = "in" if line["in_place"] else "out"
        wrong = f"  WRONG on {line['wrong']} ranks" if line["wrong"] else ""
        cell = f"{line['op']:15} {line['dtype']:9} {place:4}{line['bytes']:>11}"
        print(f"{cell}  {us}{wrong}", file=sys.stderr, flush=True)
    for why in filter(None, (line.get("restarted"), line.get("failed"))):
        print(f"gpu_peers: {why}", file=sys.stderr, flush=True)


# ---- telling ----


def best_peer(us: dict[str, float]) -> tuple[str, float] | None:
    others = [(name, time) for name, time in us.items() if not name.startswith("tutti")]
    return min(others, key=lambda pair: pair[1]) if others else None


def nccl_alone(us: dict[str, float]) -> tuple[str, float] | None:
    return ("nccl", us["nccl"]) if "nccl" in us else None


def cell_table(cells: list[dict], ours: str, against) -> list[str]:
    ops = [op for op in OPERATIONS if any(cell["op"] == op for cell in cells)]
    found = {(cell["op"], cell["bytes"]): entry(cell, ours, against) for cell in cells}
    sizes = sorted({size for _, size in found})
    return table(["bytes", *ops], [[size_text(s), *(found.get((op, s), "") for op in ops)] for s in sizes], "---")


def entry(cell: dict, ours: str, against) -> str:
    name, peer = against(cell["us"])
    mine = cell["us"][ours]
    ratio = f"{peer / mine:.2f}x"
    return f"{mine:.1f} ({name} {peer:.1f}, {ratio if peer >= mine else '**' + ratio + '**'})"


def geomeans(cells: list[dict], ours: str, against) -> str:
    parts = []
    for name, low, high in RANGES:
        mean = geomean([against(c["us"])[1] / c["us"][ours] for c in cells if low <= c["bytes"] <= high])
        if mean:
            parts.append(f"{name} {mean:.2f}x")
    slower = sum(against(c["us"])[1] < c["us"][ours] for c in cells)
    return f"Geometric means: {', '.join(parts)}; slower in {slower} of {len(cells)} cells."


def held_up(cells: list[dict]) -> list[str]:
    """Cells of which a round took much longer than the others, and what its ranks did meanwhile."""
    text = []
    for cell in cells:
        for name, median in cell["us"].items():
            greatest = cell.get("greatest_us", {}).get(name, 0)
            if greatest < HELD_UP * median:
                continue
            extra = (greatest - median) * cell["calls"] / 1e3
            launching = cell["launching_us"][name] / 1e3
            place = "in place" if cell["in_place"] else "out of place"
            text.append(
                f"{name} was held up {extra:.1f} ms: {cell['op']} {size_text(cell['bytes'])} {cell['dtype']} {place},"
                f" {greatest:.1f} us a call instead of {median:.1f}; launching took {launching:.1f} ms at most."
            )
    return ["", *text] if text else []


def unfinished(lines: list[dict]) -> list[str]:
    late = [f"time was up after {line['stopped_after_s']} s" for line in lines if "stopped_after_s" in line]
    return late + [line["failed"] for line in lines if "failed" in line]


def report(lines: list[dict]) -> list[str]:
    head = next((line for line in lines if "machine" in line), {})
    machine = f"{head.get('ranks', '?')} x {head.get('machine', '?')}"
    text = [f"{machine}; us of a call, in brackets the peer and how many times tutti's."]
    text += [f"Without {name}: {why}." for name, why in head.get("unavailable", {}).items()]
    eager = next((line["eager_us"] for line in lines if "eager_us" in line), None)
    if eager:
        took = ", ".join(f"{name} {us:.1f}" for name, us in eager.items())
        text += [f"Call by call from Python, 1 KiB all_reduce: {took} us."]
    cells = [line for line in lines if "op" in line]
    nccl = ("unregistered memory against NCCL", "tutti", nccl_alone)
    best = ("windows against the best peer", "tutti window", best_peer)
    for dtype in sorted({cell["dtype"] for cell in cells}):
        for in_place in (False, True):
            for title, ours, against in (best, nccl):
                alike = [cell for cell in cells if cell["dtype"] == dtype and cell["in_place"] == in_place]
                chosen = [cell for cell in alike if against(cell["us"])]
                if chosen:
                    text += ["", f"### {dtype}, {'in' if in_place else 'out of'} place, {title}", ""]
                    text += [*cell_table(chosen, ours, against), geomeans(chosen, ours, against)]
    text += held_up(cells)
    wrong = [cell for cell in cells if cell["wrong"]]
    text += ["", f"Wrong results in {len(wrong)} of {len(cells)} cells."]
    text += [f"{line['restarted']}." for line in lines if "restarted" in line]
    text += [f"Not all cells were measured: {why}." for why in unfinished(lines)]
    return text


def kept(path: Path) -> list[dict]:
    """The lines of an earlier run. The last one may be half written."""
    try:
        texts = path.read_text(errors="replace").splitlines()
    except OSError as error:
        sys.exit(f"gpu_peers: {path}: {error.strerror}")
    lines = []
    for i, text in enumerate(texts, 1):
        try:
            lines.append(json.loads(text))
        except ValueError:
            what = "is half written: the run was ended there" if i == len(texts) else "is no line of JSON"
            print(f"gpu_peers: line {i} of {path} {what}.", file=sys.stderr)
    return [line for line in lines if isinstance(line, dict)]


def main() -> int:
    chosen = options()
    if chosen.report:
        lines = kept(chosen.report)
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # the ranks are ended, too
        lines = measure(chosen)
    text = report(lines)
    print("\n".join(text))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(text) + "\n")
    cells = [line for line in lines if "op" in line]
    bad = any(cell["wrong"] for cell in cells) or any("failed" in line for line in lines)
    return 0 if cells and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
