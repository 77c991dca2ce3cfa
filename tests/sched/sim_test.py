#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""sim_test.py TUTTI: what `tutti sched sim` says, against closed forms, against itself, and as XML and JSON."""

import json
import subprocess
import sys
import tempfile
import xml.dom.minidom

TUTTI = sys.argv[1]
ALPHA, BETA = 2.0, 40e-6  # us, and us a byte, of the network ports


def run(*words: str, status: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([TUTTI, "sched", "sim", *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == status, (words, done.returncode, done.stderr)
    return done


def ask(*words: str, status: int = 0):
    return json.loads(run(*words, "--json", status=status).stdout)


def near(a: float, b: float, share: float = 1e-9) -> bool:
    return abs(a - b) <= share * max(abs(a), abs(b))


def ring(n: int, size: int) -> float:
    return 2 * (n - 1) * (ALPHA + size / n * BETA)


# A ring of 131,072 ranks, by one that stands for all; its shares add up.
large = ask("ring", "--world", "8x16384", "--bytes", "1G")
assert near(large["time_us"], ring(131072, 2**30)), large["time_us"]
assert large["symmetry"]["classes"] == 1 and not large["estimate"]
assert large["messages"] == 2 * 131071 * 131072 and large["bytes"] == 2 * 131071 * 2**30
path = large["critical_path"]
assert near(path["latency_us"] + path["bandwidth_us"] + path["computing_us"], large["time_us"])
assert path["messages"] == 2 * 131071 and path["ranks"] == 131072
assert large["time_us"] >= large["bound_us"]
assert near(large["busbw"], 2 * 131071 / 131072 * large["algbw"], 1e-5)

# One for all, all, and the first rounds of all give one time.
times = {form: ask("ring", "-w", "1024", "-b", "64M", *words) for form, words in
         {"few": [], "all": ["--full"], "sample": ["--rounds", "32"]}.items()}
assert times["few"]["symmetry"]["compared"] == 1024 and "symmetry" not in times["all"]
assert times["few"]["time_us"] == times["all"]["time_us"] and times["few"]["messages"] == times["all"]["messages"]
assert near(times["sample"]["time_us"], times["all"]["time_us"], 1e-6) and times["sample"]["estimate"]
# Chunks that differ by an element: all ranks are simulated, and it is no estimate.
assert not ask("ring", "-w", "1000", "-b", "64M")["estimate"]
# Links that are shared: the first rounds tell the rest to a few percent.
shared = [ask("ring", "-w", "8x32", "-b", "1M", "--net", "dragonfly", *words) for words in ([], ["--rounds", "64"])]
assert near(shared[0]["time_us"], shared[1]["time_us"], 0.03), [s["time_us"] for s in shared]

# Several side by side, by commas and one by one; what does not fit is told in its row.
rows = ask("ring", "-w", "12", "-k", "all_gather", "--compare", "bruck,direct", "--compare", "halving_doubling")
assert [row["program"] for row in rows] == ["ring", "bruck", "direct", "halving_doubling"]
assert all(row["time_us"] >= row["bound_us"] > 0 for row in rows)
table = run("ring", "-w", "6", "--compare", "tree", "bruck", status=1).stdout
assert "ratio" in table and "1.000" in table and "it does not offer it" in table, table

# A picture is one file, and XML, whatever its name says.
with tempfile.TemporaryDirectory() as folder:
    program = f"{folder}/a<&'\".goal"
    with open(program, "w", encoding="ascii") as file:
        file.write("num_ranks 2\nrank 0 {\nsend 1000b to 1\n}\n"
                   "rank 1 {\nr: recv 1000b from 0\nc: calc 50\nc requires r\n}\n")
    for words in ([program], ["tree", "-w", "200", "--slice", "64K"], ["ring", "-w", "8x16384", "-b", "1G"]):
        run(*words, "--svg", f"{folder}/a.svg")
        drawn = xml.dom.minidom.parse(f"{folder}/a.svg").documentElement
        assert drawn.tagName == "svg" and "href" not in drawn.toxml() and drawn.getElementsByTagName("polyline")

# What is not understood, and what is too much, is one sentence.
for words, status, sentence in (
        (["ring", "-w", "0"], 2, "give a number of ranks"),
        (["ring", "-w", "8x2", "-n", "16"], 2, "give one of them"),
        (["ring", "tree"], 2, "more of them after --compare"),
        (["ring", "-w", "4096", "-k", "all_gather", "-b", "4K"], 2, "give at least 16384"),
        (["ring", "--compare", "a.goal"], 2, "is simulated alone"),
        (["direct", "-k", "all_reduce", "-w", "100000"], 1, "--full runs them")):
    told = run(*words, status=status).stderr
    assert sentence in told and len(told.strip().splitlines()) <= 2, told

# Networks of links: all of them in the help; the same seed gives the same; copies and folds cost what is said.
told = run("--net", "help").stdout
assert all(f"\n  {name} " in told for name in ("fat_tree", "dragonfly", "torus", "rails")) and ":aurora" in told
noisy = ["ring", "-w", "8x8", "-b", "8M", "--net", "dragonfly:aurora", "--noise", "every=100us,length=20us"]
quiet = ask(*noisy[:-2])["time_us"]
assert ask(*noisy, "--seed", "5")["time_us"] == ask(*noisy, "--seed", "5")["time_us"] != ask(*noisy)["time_us"] > quiet
assert near(ask("ring", "-w", "16", "-b", "16M", "--fold", "10")["time_us"], ring(16, 2**24) + 15 * 2**20 / 10e3)
assert ask("ring", "-w", "16", "-b", "16M", "--machine", "auto")["time_us"] > ring(16, 2**24)
for words, sentence in (
    (["--net", "star"], "--net star: there are ports, loggops, fat_tree, dragonfly, torus and rails; see --net help."),
    (["--net", "torus", "--bandwidth", "3"], "--bandwidth is for ports and loggops, not for --net torus; here it is a"),
    (["--slow-link", "1%=.5"], "--slow-link is for networks of links, not for --net ports."),
    (["--net", "torus", "--slow-link", "1%=2"], "--slow-link 1%=2: give links and their part of the rate"),
    (["--net", "torus", "--fail-link", "x"], "--fail-link x: no link is called 'x': give a share (1%)"),
    (["--straggler", "99:late=1us"], "straggler 99: there are 8 ranks."),
    (["--noise", "each=1ms"], "--noise each=1ms: noise has no parameter 'each'."),
    (["--machine", "/none"], "--machine /none: the tuning file /none can not be read"),
    (["--copy", "0"], "--copy 0: give GB/s, such as 50."),
):
    assert sentence in run("ring", *words, status=2).stderr, (words, run("ring", *words, status=2).stderr)
cut = run("ring", "--net", "torus", "--fail-link", "nic:1.0.in", status=1).stderr
assert "rank 0 is cut off from rank 1: every way crosses a link that failed, such as nic:1.0.in" in cut, cut

print("sim: all as it should be")
