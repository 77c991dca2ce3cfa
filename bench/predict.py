#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""How good predictions are: every kind and size, by every method that can carry it out, measured by `tutti bench
--explain` and predicted twice. "model" is what the library itself goes by when it chooses; "sim" is `tutti sched sim`
with the rule loggops, for methods that are schedules. Worlds: ranks of one host, and hosts that are network namespaces
with one rank each (needs root). Constants: the model's come from `tutti tune` if it was run, which measures one host;
the simulator's, and the model's of messages between hosts, are fitted here, on three cells of each place that are not
judged: all_reduce by `direct` of 8 B on 2 and on 4 ranks, and of 1 MiB on 2. Where ranks outnumber CPUs, what a message
costs them is multiplied by ranks a CPU.

    bench/predict.py                           all: some minutes on a machine that does nothing else
    bench/predict.py --where host -n 2,4       a part
    bench/predict.py --where host -n 2,4 --pages 4k,huge,mapped --from 256 --up-to 64M --factor 2 --misses
                                               how good the choice is: the cells in which another method is faster
    bench/predict.py --out FILE --plot FILE    keeps what was measured and predicted; draws it
    bench/predict.py --report FILE             only tells what an earlier run has left in --out
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from html import escape
from math import ceil, floor, log10
from pathlib import Path

from peers.arguments import count, counts, names, size

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "hosts"))
import hosts  # noqa: E402

WHERE, PAGES = ["host", "hosts"], ["4k", "huge", "mapped"]
CALLS = 8  # that are simulated
GOAL_MEDIAN, GOAL_90 = 0.10, 0.25
NEAR, GOAL_NEAR = 1.1, 0.95  # the chosen method's time: times the best one's; in so many of the cells
COLOURS = {"model": "#1f77b4", "sim": "#d62728"}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("-n", "--ranks", type=counts, default=[2, 4, 8, 16], help="default 2,4,8,16; of hosts at most 8")
    add("--where", type=names(WHERE), default=WHERE, help="host, hosts (default both)")
    add("--pages", type=names(PAGES), default=["4k"], help="memory of a host's ranks: 4k, huge, mapped (default 4k)")
    add("--ops", default="all", help="all_reduce,broadcast (default: all)")
    add("--from", dest="least", type=size, default=8, metavar="SIZE", help="smallest size (default 8)")
    add("--up-to", type=size, default=16 << 20, metavar="SIZE", help="largest size (default 16M)")
    add("--factor", type=count, default=16, help="from one size to the next (default 16)")
    add("--rounds", type=count, default=5, help="of tutti bench: medians of so many (default 5)")
    add("--cpus", type=count, metavar="N", help="so many CPUs for all ranks together (default all)")
    add("--misses", action="store_true", help="list the cells in which the choice is far behind")
    add("--tutti", type=Path, default=ROOT / "build", metavar="DIR", help="a build of tutti (default: build)")
    add("--out", type=Path, metavar="FILE", help="lines of JSON, a row each")
    add("--plot", type=Path, metavar="FILE.svg", help="predicted against measured")
    add("--report", type=Path, metavar="FILE", help="measure nothing, tell what this holds")
    return parser.parse_args()


# ---- measuring ----
def bench(
    chosen: argparse.Namespace, where: str, n: int, ops: str, sizes: list[str], tuning: str | None = None
) -> list[dict]:
    """The cells of a world: each with its methods, predicted by the model, and measured. tuning: its constants."""
    tutti = str(chosen.tutti / "bin" / "tutti")
    words = [tutti, "bench", ops, *sizes, "--place", "out", "--explain", "--json", "--rounds", str(chosen.rounds)]
    with hosts.Hosts(n, plain=True) if where == "hosts" else nullcontext() as made:
        command = [tutti, "run", "-n", str(n), "--cores", "spread", "--", *words]
        if made:
            start = ["ip", "netns", "exec", made.names[0], tutti, "run", "--remote-shell", "ip netns exec"]
            command = [*start, "--hosts", ",".join(f"{name}:1" for name in made.names), "--", *words]
        env = {**os.environ, **({"TUTTI_TUNING": tuning} if tuning else {})}
        if made:
            env |= {"TUTTI_TRUST_NETWORK": "1", "TUTTI_TRANSPORT": "tcp"}
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=1800)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ended.stderr}")
    return json.loads(ended.stdout)["explained"]


# ---- the simulator, with constants that three cells give ----
def measured(cells: list[dict], name: str) -> float:
    return next(way["measured_us"] for cell in cells for way in cell["ways"] if way["name"] == name)


def fit(chosen: argparse.Namespace, where: str) -> dict:
    """loggops in ns: by `direct` a message takes 2o + L + sG; with 4 ranks each has 3 to send and 3 to take."""
    crowd = max(1.0, 4 / os.cpu_count())
    two, four = (bench(chosen, where, n, "all_reduce", ["-b", "8", "-e", "8"]) for n in (2, 4))
    large = bench(chosen, where, 2, "all_reduce", ["-b", "1M", "-e", "1M"])
    t2, t4, t_large = (1000 * measured(cells, "direct") for cells in (two, four, large))
    o = max((t4 - t2) / (6 * crowd - 2), t2 / 20)
    return {"o": o, "L": max(t2 - 2 * o, 1), "G": max((t_large - t2) / (1 << 20), 1e-3)}


def tuning_of(constants: dict) -> str:
    """What the model has of this host, if `tutti tune` was run, with what was fitted of messages between hosts."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tutti"
    texts = [path.read_text() for path in cache.glob(f"*-{os.cpu_count()}.tune")]
    own = next((text for text in texts if "call_ns" in text), "")  # other files are GPUs'
    lines = [line for line in own.splitlines() if not line.startswith("net_")]
    net = {"line": constants["L"], "message": 2 * constants["o"]}
    lines += [f"net_{name}_ns {value:.0f}" for name, value in net.items()] + [f"net_ring_gbs {1 / constants['G']:.3f}"]
    return "\n".join(lines) + "\n"


def simulate(chosen: argparse.Namespace, constants: dict, op: str, n: int, bytes_: int, name: str) -> float | None:
    """Microseconds; None: the method is no schedule."""
    crowd = max(1.0, n / os.cpu_count())
    o, gap = constants["o"] * crowd, constants["G"] * crowd
    # The bench counts bytes as nccl-tests do: of all_gather and the like, of all ranks' blocks together. Its calls
    # follow one another, so that a root may be ahead.
    words = ["sched", "sim", name, "--kind", op, "--world", str(n), "--bytes", str(bytes_), "--calls", str(CALLS)]
    words += ["--net", "loggops", "--json"]
    words += ["--latency", f"{constants['L']:.0f}ns", "--overhead", f"{o:.0f}ns", "--gap", "0ns"]
    words += ["--byte-overhead", f"{gap:.6f}", "--bandwidth", f"{1 / gap:.6f}", "--eager", "1T"]
    done = subprocess.run([str(chosen.tutti / "bin" / "tutti"), *words], capture_output=True, text=True)
    return json.loads(done.stdout)["time_us"] / CALLS if done.returncode == 0 else None


def rows_of(chosen: argparse.Namespace, where: str, pages: str, n: int, constants: dict) -> list[dict]:
    sizes = ["-b", str(chosen.least), "-e", str(chosen.up_to), "-f", str(chosen.factor), "--pages", pages]
    place = where if pages == "4k" else f"{where}, {pages}"
    rows = []
    with tempfile.NamedTemporaryFile("w", suffix=".tune") as file:
        file.write(tuning_of(constants))
        file.flush()
        cells = bench(chosen, where, n, chosen.ops, sizes, file.name if where == "hosts" else None)
    for cell in cells:
        for way in cell["ways"]:
            row = {"where": place, "ranks": n, "op": cell["op"], "bytes": cell["bytes"], "way": way["name"]}
            rows.append({**row, "chosen": way["chosen"], "measured": way["measured_us"], "model": way["predicted_us"]})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        times = pool.map(lambda r: simulate(chosen, constants, r["op"], n, r["bytes"], r["way"]), rows)
    return [{**row, **({"sim": time} if time else {})} for row, time in zip(rows, times)]


# ---- telling ----
def error_of(row: dict, by: str) -> float:
    return abs(row[by] - row["measured"]) / row["measured"]


def judged(rows: list[dict], by: str) -> list[dict]:
    """The model by what it is for, the chosen method; the simulator by every schedule."""
    return [row for row in rows if by in row and row["measured"] > 0 and (by == "sim" or row["chosen"])]


def quantile(errors: list[float], share: float) -> float:
    return sorted(errors)[min(len(errors) - 1, int(share * len(errors)))]


def table(rows: list[dict]) -> list[str]:
    lines = ["| where | ranks | predicted by | cells | median error | 90th percentile | worst kind (its median) |"]
    lines.append("|---|--:|---|--:|--:|--:|---|")
    for where, n in sorted({(row["where"], row["ranks"]) for row in rows}):
        for by in COLOURS:
            here = [row for row in judged(rows, by) if (row["where"], row["ranks"]) == (where, n)]
            if not here:
                continue
            errors = [error_of(row, by) for row in here]
            of_kind = {op: [error_of(row, by) for row in here if row["op"] == op] for op in {row["op"] for row in here}}
            kinds = {op: statistics.median(errors_of) for op, errors_of in of_kind.items()}
            worst = max(kinds, key=kinds.get)
            figures = f"{statistics.median(errors):.0%} | {quantile(errors, 0.9):.0%} | {worst} ({kinds[worst]:.0%})"
            lines.append(f"| {where} | {n} | {by} | {len(here)} | {figures} |")
    return lines


def choices(rows: list[dict]) -> list[tuple[dict, dict]]:
    """The rows of the chosen and of the best method, for each cell."""
    cells: dict[tuple, list[dict]] = {}
    for row in rows:
        cells.setdefault((row["where"], row["ranks"], row["op"], row["bytes"]), []).append(row)
    best = [min(ways, key=lambda row: row["measured"]) for ways in cells.values()]
    return [(next(row for row in ways if row["chosen"]), first) for ways, first in zip(cells.values(), best)]


def choice(rows: list[dict], misses: bool) -> list[str]:
    both = choices(rows)
    behind = [(chosen, best) for chosen, best in both if chosen["measured"] > NEAR * best["measured"]]
    lines = [f"  {c['where']} {c['ranks']} {c['op']} {c['bytes']}: {c['way']} {c['measured']:.1f} us "
             f"(predicted {c['model']:.1f}), {b['way']} {b['measured']:.1f} us (predicted {b['model']:.1f})"
             for c, b in behind]  # fmt: skip
    near = len(both) - len(behind)
    said = f"chosen within {NEAR - 1:.0%} of the best: {near} of {len(both)} cells, {near / len(both):.0%}"
    return (lines if misses else []) + [f"{said} (goal: {GOAL_NEAR:.0%})"]


def svg(rows: list[dict]) -> str:
    """Predicted against measured, both logarithmic; the band is 25 %."""
    points = [(row["measured"], row[by], by, row) for by in COLOURS for row in judged(rows, by)]
    low = floor(log10(min(min(p[0], p[1]) for p in points)))
    high = ceil(log10(max(max(p[0], p[1]) for p in points)))
    side, left, top = 460.0, 80.0, 40.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + side * (log10(x) - low) / (high - low), top + side * (1 - (log10(y) - low) / (high - low))

    drawn = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + side + 140:.0f}" height="{top + side + 60:.0f}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>']  # fmt: skip
    for decade in range(low, high + 1):
        x, y = at(10.0**decade, 10.0**decade)
        drawn.append(f'<path d="M{x:.1f} {top}V{top + side}M{left} {y:.1f}H{left + side}" stroke="#ddd" fill="none"/>')
        drawn.append(f'<text x="{x:.1f}" y="{top + side + 18:.1f}" text-anchor="middle">{10.0**decade:g} us</text>')
        drawn.append(f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**decade:g} us</text>')
    for factor, dashes in ((1.0, ""), (1.25, "4 3"), (1 / 1.25, "4 3")):
        ends = [at(10.0**low * max(1, 1 / factor), 10.0**low * max(1, factor)),
                at(10.0**high * min(1, 1 / factor), 10.0**high * min(1, factor))]  # fmt: skip
        places = 'x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"'.format(*ends[0], *ends[1])
        drawn.append(f'<line {places} stroke="#888" stroke-dasharray="{dashes}"/>')
    for x, y, by, row in points:
        right, down = at(x, y)
        what = escape(f"{row['where']} {row['ranks']} {row['op']} {row['bytes']} {row['way']}: {y:.1f} for {x:.1f} us")
        drawn.append(f'<circle cx="{right:.1f}" cy="{down:.1f}" r="2.5" fill="{COLOURS[by]}" fill-opacity="0.5">'
                     f"<title>{what}</title></circle>")  # fmt: skip
    for i, by in enumerate(COLOURS):
        drawn.append(f'<circle cx="{left + side + 20}" cy="{top + 20 * i}" r="5" fill="{COLOURS[by]}"/>'
                     f'<text x="{left + side + 32}" y="{top + 20 * i + 4}">{by}</text>')  # fmt: skip
    drawn.append(f'<text x="{left + side / 2}" y="{top + side + 40}" text-anchor="middle">measured</text>')
    middle = top + side / 2
    drawn.append(f'<text x="16" y="{middle}" transform="rotate(-90 16 {middle})">predicted</text></svg>')
    return "\n".join(drawn) + "\n"


def main() -> int:
    chosen = options()
    rows = [json.loads(line) for line in chosen.report.read_text().splitlines()] if chosen.report else []
    if chosen.cpus:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.cpus])
    for where in [] if chosen.report else chosen.where:
        try:
            constants = fit(chosen, where)
        except hosts.Unavailable as why:
            print(f"no hosts: {why}", file=sys.stderr)
            continue
        print(f"{where}: o {constants['o']:.0f} ns, L {constants['L']:.0f} ns, G {constants['G']:.4f} ns a byte")
        for n in (n for n in chosen.ranks if where == "host" or n <= 8):
            for pages in chosen.pages if where == "host" else PAGES[:1]:
                rows += rows_of(chosen, where, pages, n, constants)
    if chosen.out:
        chosen.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if chosen.plot and rows:
        chosen.plot.write_text(svg(rows))
    print("\n".join(table(rows)))
    by_model = [error_of(row, "model") for row in judged(rows, "model")]
    if not by_model:
        return 1
    print("\n".join(choice(rows, chosen.misses)))
    return 0 if statistics.median(by_model) <= GOAL_MEDIAN and quantile(by_model, 0.9) <= GOAL_90 else 1


if __name__ == "__main__":
    sys.exit(main())
