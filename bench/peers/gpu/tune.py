# SPDX-License-Identifier: BSD-3-Clause
"""Measures each method of the back end cuda on all GPUs, and writes the file of constants that follows (fit.py).
`python3 -m peers.gpu.tune -n 2 --library FILE --out DIR --json FILE`."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path

import gpu_peers

from . import fit as gpu_fit

KIB, MIB = 1 << 10, 1 << 20
SIZES = [KIB, 16 * KIB, 128 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("-n", "--ranks", type=int, required=True)
    add("--library", type=Path, required=True)
    add("--out", type=Path, required=True, help="where the file of constants is written")
    add("--json", type=Path, help="what was found")
    add("--seconds", type=float, default=30)
    chosen = parser.parse_args()

    plan = argparse.Namespace(
        **vars(chosen), ops=["all_gather", "all_reduce"], dtypes=["bfloat16"], places=["out"], sizes=SIZES
    )
    plan.calls, plan.rounds, plan.method, plan.option, plan.json = 20, 5, None, [], None
    lines = gpu_peers.measure(plan, "peers.gpu.tune_rank")
    device = next((line["machine"] for line in lines if "machine" in line), "")
    fitted = gpu_fit.fit(lines, chosen.ranks, gpu_fit.meet_ns(device, chosen.ranks))
    constants, left_out = gpu_fit.sorted_out(fitted)
    found = {"device": device, "constants": constants, "left_out": left_out, "lines": lines}
    if left_out:
        values = ", ".join(f"{name} {value:.4g}" for name, value in left_out.items())
        found["told"] = f"left out, since no such value can be: {values}"
        print(f"gpu_tune: {found['told']}", file=sys.stderr)
    if constants:
        found["file"] = gpu_fit.file_name(device, chosen.ranks)
        about = f"{chosen.ranks} x {device}, {date.today().isoformat()}; the option gpu_tuning names such a file"
        (chosen.out / found["file"]).write_text(gpu_fit.file_text(constants, about))
    if chosen.json:
        chosen.json.write_text(json.dumps(found))
    return 0 if constants and not any("failed" in line or line.get("wrong") for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
