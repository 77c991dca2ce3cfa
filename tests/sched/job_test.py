#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""job_test.py TUTTI ROOT: what `tutti sched job` says, against closed forms on ports, as a fit, as JSON and as XML; and
that no file, however broken, gets more than a sentence."""

import json
import os
import random
import subprocess
import sys
import tempfile
import xml.dom.minidom

TUTTI, ROOT = sys.argv[1:]
ALPHA, BETA = 2e-3, 40e-9  # ms, and ms a byte, of the network ports:latency=2us,bandwidth=25
SIZE = 12 << 20
JOB = f"""name = one & <two> \u00e9
net = ports:latency=2us,bandwidth=25
ranks_per_node = 2
nodes = 1,4
overlap = no
forward = 10ms
published = 4:90%
[tensors]
a bytes={SIZE} backward=20ms
"""
folder = tempfile.TemporaryDirectory()


def run(text, *words, status=0):
    path = os.path.join(folder.name, "a.job")
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    done = subprocess.run([TUTTI, "sched", "job", path, *words], capture_output=True, text=True, errors="replace",
                          timeout=200)
    assert status is None or done.returncode == status, (words, done.returncode, done.stderr)
    return done


def ask(text, *words):
    return json.loads(run(text, *words, "--json").stdout)["runs"]


def near(a, b, share=1e-4):
    assert abs(a - b) <= share * max(abs(a), abs(b)), (a, b)


# Two ranks exchange all at once. On 4 nodes: halves within, then parts of halves across and back, then halves within.
pair = ALPHA + SIZE * BETA
levels = 2 * (ALPHA + SIZE / 2 * BETA) + 4 * ALPHA + 2 * 3 / 4 * SIZE / 2 * BETA
runs = ask(JOB, "--with", "algorithm=ring", "--with", "compression=3;call_overhead=1ms")
near(runs[0]["weak"][0]["called_ms"], pair)
near(runs[0]["weak"][1]["called_ms"], levels)
near(runs[0]["weak"][1]["efficiency"], 30 / (30 + levels))
near(runs[0]["strong"][1]["efficiency"], 30 / 4 / (30 / 4 + levels))
near(runs[1]["weak"][1]["called_ms"], 14 * (ALPHA + SIZE / 8 * BETA))
near(runs[2]["weak"][0]["called_ms"], 1 + ALPHA + SIZE / 3 * BETA)

# The other ways to share: what they call, by the same forms.
hsdp = ask(JOB, "--set", "parallel=hsdp", "--set", "gather=2")[0]["weak"][1]
half = ALPHA + SIZE / 2 * BETA
near(hsdp["called_ms"], 2 * (ALPHA + SIZE * BETA) + half + 4 * ALPHA + 2 * 3 / 4 * SIZE / 2 * BETA)
stages = JOB.replace("[tensors]", f"[tensors]\nfirst bytes={SIZE} backward=20ms activation=1M")
pipe = ask(stages, "--set", "parallel=pipeline", "--set", "stages=2", "--set", "microbatches=4")[0]["weak"][0]
# Two passes of 25 ms a stage fill 5 places; the message of 1 MiB goes to and fro while others compute, but at the ends.
message = ALPHA + (1 << 20) * BETA
assert 5 * 25 + 2 * message - 1e-3 <= pipe["step_ms"] <= 5 * 25 + 8 * message, pipe["step_ms"]

# What is found is what was asked for, and told.
fitted = run(JOB, "--fit", "call_overhead={}ms", "--to", "75%").stdout
number = float(fitted.split("fitted: call_overhead=")[1].split("ms")[0])
near(number, 10 - levels, 1e-3)
assert "published" in fitted and "75.00 %" in fitted and "90.00 %" in fitted

# Noise: the same for the same seed.
words = ["--set", "noise=gaussian:1%,spikes:1%:5ms", "--set", "stragglers=1%:1.2"]
assert ask(JOB, *words) == ask(JOB, *words) != ask(JOB, *words, "--set", "seed=2")

# A picture is one file, and XML, whatever the job is called.
picture = os.path.join(folder.name, "a.svg")
run(JOB, "--svg", picture, "--with", "noise=exponential:1%")
drawn = xml.dom.minidom.parse(picture).documentElement
assert drawn.tagName == "svg" and len(drawn.getElementsByTagName("polyline")) == 4 and "href" not in drawn.toxml()

# Links that are half as fast, and links that are not there.
tree = JOB.replace("net = ports:latency=2us,bandwidth=25", "net = fat_tree:nics=2")
slow = [run["weak"][1]["called_ms"] for run in ask(tree, "--with", "slow_links=nic:0.0.out=0.5")]
assert slow[0] < slow[1] < 2 * slow[0], slow
assert "is cut off" in run(tree, "--set", "failed_links=nic:0.0.out", status=1).stderr
assert "nowhere" in run(tree, "--set", "failed_links=nowhere:1%", status=1).stderr

# The example's job is one that is understood.
with open(os.path.join(ROOT, "examples", "cosmictagger", "a21.job"), encoding="ascii") as example:
    point = ask(example.read(), "--set", "nodes=1")[0]["weak"][0]
assert point["calls"] == 3 and 0.99 < point["efficiency"] < 1, point

# What is not understood, and what is too much, is one sentence.
for text, words, status, sentence in (
        ("forward = 1ms\n", [], 1, "there are no tensors"),
        (JOB, ["--set", "net=torus:dims=3"], 1, "torus"),
        (JOB, ["--set", "net=ports:gap=1"], 1, "it takes latency=2us and bandwidth=25"),
        (JOB, ["--set", "net=cloud"], 1, "cloud"),
        (JOB, ["--set", "algorithm=rung"], 1, "rung"),
        (JOB, ["--set", "algorithm=bruck"], 1, "bruck"),
        (JOB, ["--set", "bytes=1"], 1, "there is no key 'bytes'"),
        (JOB, ["--set", "forward"], 1, "is not KEY=VALUE"),
        (JOB, ["--set", "nodes=1000000"], 1, "at most 1048576 ranks"),
        (JOB, ["--set", "noise=gaussian:1%", "--set", "steps=100000", "--set", "nodes=100000"], 1, "give fewer"),
        (JOB, ["--with", "nodes=2"], 1, "give other nodes by --set"),
        (JOB, ["--fit", "noise=gaussian:1%", "--to", "9%"], 1, "there is no {}"),
        (JOB, ["--fit", "noise=gaussian:{}%"], 2, "go together"),
        (JOB, ["--fit", "forward={}ms", "--to", "50%"], 1, "--fit"),
        (JOB, ["--svg", "/nowhere/a.svg"], 1, "cannot write")):
    told = run(text, *words, status=status).stderr
    assert sentence in told and len(told.strip().splitlines()) <= 3, told

chance = random.Random(1)
for _ in range(150):
    text = bytearray(stages.encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(text))
        some = bytes(chance.choice(b"0129=.,:%[]#xMs \n\0\xff") for _ in range(chance.randint(0, 3)))
        text[at:at + chance.randint(0, 3)] = some
    done = run(bytes(text), status=None)
    assert done.returncode in (0, 1) and len(done.stderr.strip().splitlines()) <= 3, (bytes(text), done)
print("job: all as it should be")
