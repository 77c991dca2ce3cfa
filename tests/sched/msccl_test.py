# SPDX-License-Identifier: BSD-3-Clause
"""Plans of MSCCL against an interpreter of the format that shares nothing with the library: thread blocks as programs
that take turns by chance, connections with two places, sums of random integers.

usage: msccl_test.py TUTTI. What the command exports is carried out here, in place and out of place, and read again by
the command. Plans written here, and hundreds of broken ones made of them, are given to the command: what it proves must
be right in every interleaving that is tried, and what it refuses is told in one sentence."""

import copy
import os
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

MASK = (1 << 64) - 1
failures = []


def fail(text):
    failures.append(text)
    print("FAILED: " + text)


# ---- the interpreter ----

class Wrong(Exception):
    """What a run found: a deadlock, a read of nothing, a message of another size."""


class Gpu:
    def __init__(self, element, n_in, n_out):
        self.blocks = [(int(tb.get("send")), int(tb.get("recv")), int(tb.get("chan")), [dict(s.attrib) for s in tb])
                       for tb in sorted(element, key=lambda tb: int(tb.get("id")))]
        self.chunks = {"i": [None] * n_in, "o": [None] * n_out, "s": [None] * int(element.get("s_chunks"))}


class Run:
    """One interleaving of a plan, by a seed."""

    def __init__(self, root, in_place, seed):
        self.coll, self.n, self.per_loop = root.get("coll"), int(root.get("ngpus")), int(root.get("nchunksperloop"))
        self.chance = random.Random(seed)
        self.block = self.per_loop // self.n
        own_in = self.coll in ("allgather", "gather")
        own_out = self.coll in ("reduce_scatter", "reducescatter", "scatter")
        self.n_in = self.block if own_in else self.per_loop
        self.n_out = self.block if own_out else self.per_loop
        self.gpus = {int(g.get("id")): Gpu(g, self.n_in, self.n_out) for g in root}
        self.value = {(g, c): self.chance.getrandbits(64) for g in self.gpus for c in range(self.per_loop)}
        self.in_place = in_place
        for g, gpu in self.gpus.items():
            if self.coll not in ("broadcast", "scatter") or g == 0:
                for c in range(self.n_in):
                    self.set(g, "i", c, self.value[g, c])
        self.at = {(g, b): 0 for g, gpu in self.gpus.items() for b in range(len(gpu.blocks))}
        self.flag = dict.fromkeys(self.at, 0)
        self.queue = {}
        self.slots = 2 if root.get("proto") == "Simple" else 8

    def cell(self, g, buffer, c):
        if self.in_place and buffer in "io" and self.n_in != self.n_out:
            if self.n_in < self.n_out and buffer == "i":
                return "o", g * self.n_in + c
            if self.n_out < self.n_in and buffer == "o":
                return "i", g * self.n_out + c
        return ("o" if self.in_place and buffer == "i" and self.n_in == self.n_out else buffer), c

    def get(self, g, buffer, c):
        buffer, c = self.cell(g, buffer, c)
        value = self.gpus[g].chunks[buffer][c]
        if value is None:
            raise Wrong(f"gpu {g} reads {buffer}{c}, which holds nothing")
        return value

    def set(self, g, buffer, c, value):
        buffer, c = self.cell(g, buffer, c)
        self.gpus[g].chunks[buffer][c] = value

    def ready(self, key):
        g, b = key
        send, recv, channel, steps = self.gpus[g].blocks[b]
        if self.at[key] == len(steps):
            return False
        step = steps[self.at[key]]
        other = int(step["depid"])
        if other >= 0 and self.flag[g, other] <= int(step["deps"]):
            return False
        kind = step["type"]
        if kind in ("r", "rcs", "rrc", "rrs", "rrcs") and not self.queue.get((recv, g, channel)):
            return False
        return kind not in ("s", "rcs", "rrs", "rrcs") or len(self.queue.get((g, send, channel), ())) < self.slots

    def go(self, key):
        g, b = key
        send, recv, channel, steps = self.gpus[g].blocks[b]
        step = steps[self.at[key]]
        kind, n = step["type"], int(step["cnt"])
        src, dst = ((step[f"{side}buf"], int(step[f"{side}off"])) for side in ("src", "dst"))
        incoming = None
        if kind in ("r", "rcs", "rrc", "rrs", "rrcs"):
            incoming = self.queue[recv, g, channel].pop(0)
            if len(incoming) != n:
                raise Wrong("a message of another size")
        source = [self.get(g, src[0], src[1] + k) for k in range(n)] if kind not in ("r", "rcs", "nop") else None
        if kind in ("rrc", "rrs", "rrcs"):
            incoming = [(a + b) & MASK for a, b in zip(source, incoming)]
        if kind == "re":
            incoming = [(self.get(g, dst[0], dst[1] + k) + source[k]) & MASK for k in range(n)]
        result = source if kind in ("s", "cpy") else incoming
        if kind in ("r", "rcs", "rrc", "rrcs", "cpy", "re"):
            for k in range(n):
                self.set(g, dst[0], dst[1] + k, result[k])
        if kind in ("s", "rcs", "rrs", "rrcs"):
            self.queue.setdefault((g, send, channel), []).append(result)
        if kind != "nop" and int(step["hasdep"]):
            self.flag[key] = self.at[key] + 1
        self.at[key] += 1

    def all(self):
        """Blocks go by priorities that change now and then: that finds more than even turns do."""
        keys = sorted(self.at)
        rank = {key: self.chance.random() for key in keys}
        while True:
            able = [key for key in keys if self.ready(key)]
            if not able:
                break
            key = max(able, key=rank.get)
            if self.chance.random() < 0.1:
                rank[key] = self.chance.random() - 1
            self.go(key)
        if any(self.at[g, b] < len(self.gpus[g].blocks[b][3]) for g, b in self.at):
            raise Wrong("deadlock")
        if any(self.queue.values()):
            raise Wrong("a message that nobody receives")
        self.check()

    def expected(self, g, c):
        total = lambda chunk: sum(self.value[r, chunk] for r in self.gpus) & MASK
        return {"allreduce": lambda: total(c), "reduce": lambda: total(c), "broadcast": lambda: self.value[0, c],
                "allgather": lambda: self.value[c // self.block, c % self.block],
                "gather": lambda: self.value[c // self.block, c % self.block],
                "scatter": lambda: self.value[0, g * self.block + c],
                "reduce_scatter": lambda: total(g * self.block + c),
                "alltoall": lambda: self.value[c // self.block, g * self.block + c % self.block]}[self.coll]()

    def check(self):
        for g in self.gpus:
            if self.coll in ("reduce", "gather") and g:
                continue
            for c in range(self.n_out):
                buffer, at = self.cell(g, "o", c)
                if self.gpus[g].chunks[buffer][at] != self.expected(g, c):
                    raise Wrong(f"gpu {g} ends with a wrong o{c}")


def trouble(root, in_place, n_runs):
    """What goes wrong in one of so many interleavings; None: nothing."""
    for seed in range(n_runs):
        try:
            Run(root, in_place, seed).all()
        except Wrong as wrong:
            return str(wrong)
    return None


# ---- the command ----

def tutti(*words):
    done = subprocess.run([sys.argv[1], "sched", *words], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def exports(folder):
    """What the command exports is right, and is proved when it is read again."""
    path, n = os.path.join(folder, "export.xml"), 0
    names = ["ring", "halving_doubling", "direct", "tree", "bruck", "pairwise", "double_tree", "hierarchical:4"]
    kinds = ["all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"]
    for name in names:
        for kind in kinds:
            for world in ("2", "3", "8", "11", "4x2"):
                status, text = tutti("export", name, "--kind", kind, "--world", world, "--output", path)
                if status != 0:
                    if "can not run" not in text:
                        fail(f"export of {name} {kind} {world}: {text}")
                    continue
                root = ElementTree.parse(path).getroot()
                for in_place in (True, False):
                    where = "inplace" if in_place else "outofplace"
                    wrong = trouble(root, in_place, 3) if root.get(where) == "1" else None
                    if wrong:
                        fail(f"what is exported of {name} {kind} {world} {where}: {wrong}")
                status, text = tutti("check", path)
                if status != 0:
                    fail(f"what is exported of {name} {kind} {world} is refused: {text}")
                n += 1
    print(f"{n} exports")
    if n < 100:
        fail("too little was exported")


# ---- plans of our own ----

def step(kind, src=("i", 0), dst=("o", 0), n=1, wait=(-1, -1), signals=0):
    return {"type": kind, "srcbuf": src[0], "srcoff": src[1], "dstbuf": dst[0], "dstoff": dst[1], "cnt": n,
            "depid": wait[0], "deps": wait[1], "hasdep": signals}


def plan(coll, n, per_loop, in_place, gpus, scratch=0):
    """gpus: for each a list of (send, recv, channel, steps)."""
    root = ElementTree.Element("algo", name="own", proto="Simple", nchannels="8", nchunksperloop=str(per_loop),
                               ngpus=str(n), coll=coll, inplace=str(int(in_place)), outofplace=str(int(not in_place)))
    for g, blocks in enumerate(gpus):
        gpu = ElementTree.SubElement(root, "gpu", id=str(g), i_chunks="0", o_chunks="0", s_chunks=str(scratch))
        for b, (send, recv, channel, steps) in enumerate(blocks):
            tb = ElementTree.SubElement(gpu, "tb", id=str(b), send=str(send), recv=str(recv), chan=str(channel))
            for s, attributes in enumerate(steps):
                ElementTree.SubElement(tb, "step", s=str(s), **{k: str(v) for k, v in attributes.items()})
    return root


def ring(n, channels):
    """all_reduce by fused steps, one thread block a channel."""
    gpus = []
    for g in range(n):
        blocks = []
        for c in range(channels):
            at = lambda hop: ("i", (g - hop) % n * channels + c)
            steps = [step("s", at(0), at(0))]
            steps += [step("rrs", at(k), at(k)) for k in range(1, n - 1)]
            steps += [step("rrcs", at(n - 1), at(n - 1))]
            steps += [step("rcs", at(k), at(k)) for k in range(n, 2 * n - 2)]
            steps += [step("r", at(2 * n - 2), at(2 * n - 2))]
            blocks.append(((g + 1) % n, (g - 1) % n, c, steps))
        gpus.append(blocks)
    return plan("allreduce", n, n * channels, True, gpus)


def pairs(n):
    """all_reduce: everybody sends to everybody, adds up its own chunk, and sends that to everybody."""
    gpus = []
    for g in range(n):
        peers = [(g + k) % n for k in range(1, n)]
        order = sorted(peers)
        blocks = [(-1, -1, 0, [step("nop", n=0, wait=(1 + peers.index(p), 1)) for p in order[:-1]] +
                   [step("re", ("s", k), ("i", g), wait=(1 + peers.index(order[-1]), 1) if k == 0 else (-1, -1),
                         signals=int(k == n - 2)) for k in range(n - 1)])]
        for p in peers:
            slot = p if p < g else p - 1
            blocks.append((p, p, 0, [step("s", ("i", p), ("s", 0)),
                                     step("r", ("i", 0), ("s", slot), signals=1),
                                     step("s", ("i", g), ("i", g), wait=(0, 2 * n - 4)),
                                     step("r", ("i", p), ("i", p))]))
        gpus.append(blocks)
    return plan("allreduce", n, n, True, gpus, scratch=n - 1)


def gather_through(n):
    """all_gather out of place in a ring, whose first step copies."""
    gpus = []
    for g in range(n):
        steps = [step("s", ("i", 0), ("o", g))] + [step("rcs", ("i", 0), ("o", (g - k) % n)) for k in range(1, n - 1)]
        steps += [step("r", ("i", 0), ("o", (g + 1) % n))]
        gpus.append([((g + 1) % n, (g - 1) % n, 0, steps), (-1, -1, 0, [step("cpy", ("i", 0), ("o", g))])])
    return plan("allgather", n, n, False, gpus)


def exchange(n, in_place):
    """all_to_all, straight; in place, too."""
    gpus = []
    for g in range(n):
        blocks = [(-1, -1, 0, [] if in_place else [step("cpy", ("i", g), ("o", g))])]
        for k in range(1, n):
            p, q = (g + k) % n, (g - k) % n
            blocks.append((p, q, k, [step("s", ("i", p), ("o", p), signals=1), step("r", ("i", 0), ("o", q))]))
        if in_place:  # what a peer sends is written where the own chunk for it was, when that was sent
            for k in range(1, n):
                blocks[k][3][1].update(depid=n - k, deps=0)
        gpus.append(blocks)
    return plan("alltoall", n, n, in_place, gpus)


def scatter_sums(n):
    """reduce_scatter: each chunk goes round the ring, and the sum stays with its owner."""
    gpus = []
    for g in range(n):
        at = lambda hop: ("i", (g - 1 - hop) % n)
        steps = [step("s", at(0), at(0))] + [step("rrs", at(k), at(k)) for k in range(1, n - 1)]
        steps += [step("rrc", ("i", g), ("o", 0))]
        gpus.append([((g + 1) % n, (g - 1) % n, 0, steps)])
    return plan("reduce_scatter", n, n, False, gpus)


def crossed():
    """broadcast on two channels that overtake one another: the first message sent is the last received."""
    sender = [(1, -1, 0, [step("s", ("i", 0), ("o", 0), signals=1)]),
              (1, -1, 1, [step("s", ("i", 1), ("o", 1), wait=(0, 0))])]
    receiver = [(-1, 0, 0, [step("r", ("i", 0), ("i", 0), wait=(1, 0))]),
                (-1, 0, 1, [step("r", ("i", 0), ("i", 1), signals=1)])]
    return plan("broadcast", 2, 2, True, [sender, receiver])


def relayed():
    """all_to_all of two chunks a block, which another gpu keeps in SCRATCH on their way."""
    gpus = []
    for g in range(3):
        left, right = (g - 1) % 3, (g + 1) % 3
        gpus.append([(-1, -1, 0, [step("cpy", ("i", 2 * g), ("o", 2 * g), 2)]),
                     (right, left, 0, [step("s", ("i", 2 * right), n=2), step("r", dst=("o", 2 * left), n=2)]),
                     (right, left, 1, [step("s", ("i", 2 * left), n=2), step("rcs", dst=("s", 0), n=2),
                                       step("r", dst=("o", 2 * right), n=2)])])
    return plan("alltoall", 3, 6, False, gpus, scratch=2)


def ahead(n, hops, protocol):
    """broadcast down a chain: all chunks are sent before the next GPU takes one; LL has room for eight."""
    first = [(1, -1, 0, [step("s", ("i", c), signals=1) for c in range(n)]),
             (1, -1, 1, [step("s", ("i", n), wait=(0, n - 1))])]
    gpus = [first]
    for g in range(1, hops + 1):
        last = g == hops
        kind = "r" if last else "rcs"
        peers = (-1 if last else g + 1, g - 1)
        gpus.append([(*peers, 0, [step(kind, dst=("i", c), wait=(1, 0) if c == 0 else (-1, -1), signals=1)
                                  for c in range(n)]),
                     (*peers, 1, [step(kind, dst=("i", n), signals=1)])])
    root = plan("broadcast", hops + 1, n + 1, True, gpus)
    root.set("proto", protocol)
    return root


def star(coll, n):
    """reduce, gather and scatter at gpu 0."""
    gpus = [[]]
    for g in range(1, n):
        if coll == "scatter":
            gpus[0].append((g, -1, 0, [step("s", ("i", g), ("o", 0))]))
            gpus.append([(-1, 0, 0, [step("r", ("i", 0), ("o", 0))])])
        else:
            wait = (g - 2, 0) if g > 1 and coll == "reduce" else (-1, -1)
            kind, src, dst = ("rrc", ("i", 0), ("i", 0)) if coll == "reduce" else ("r", ("i", 0), ("o", g))
            gpus[0].append((-1, g, 0, [step(kind, src, dst, wait=wait, signals=1)]))
            gpus.append([(0, -1, 0, [step("s", ("i", 0), ("o", 0))])])
    return plan(coll, n, 1 if coll == "reduce" else n, True, gpus)


def mutate(root, chance):
    """A plan that differs in one place; None: in none."""
    root = copy.deepcopy(root)
    tbs = list(root.iter("tb"))
    tb = chance.choice([t for t in tbs if len(t)])
    one = chance.choice(list(tb))
    what = chance.randrange(9)
    if what == 0:
        one.set(chance.choice(("srcoff", "dstoff")), str(chance.randrange(4)))
    elif what == 1:
        one.set("type", chance.choice(("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re")))
    elif what == 2:
        waits = [s for s in root.iter("step") if s.get("depid") != "-1"] or [one]
        one = chance.choice(waits)
        one.set("depid", "-1")
    elif what == 3:
        signals = [s for s in root.iter("step") if s.get("hasdep") == "1"] or [one]
        chance.choice(signals).set("hasdep", "0")
    elif what == 4:
        one.set(chance.choice(("srcbuf", "dstbuf")), chance.choice("ios"))
    elif what == 5 and len(tb) > 1:
        a, b = chance.sample(range(len(tb)), 2)
        first, second = dict(tb[a].attrib), dict(tb[b].attrib)
        first["s"], second["s"] = second["s"], first["s"]
        tb[a].attrib.update(second), tb[b].attrib.update(first)
        tb[a].set("s", str(a)), tb[b].set("s", str(b))
    elif what == 6:
        tb.remove(one)
        for s, each in enumerate(tb):
            each.set("s", str(s))
    elif what == 7:
        one.set("depid", str(chance.randrange(3))), one.set("deps", str(chance.randrange(3)))
    elif what == 8:
        one.set("cnt", "2")
    return root


def own_plans(folder):
    """Right ones are proved; what is proved of broken ones is right."""
    plans = {"ring": ring(4, 1), "rings": ring(3, 4), "pairs": pairs(4), "gather": gather_through(4),
             "exchange": exchange(4, False), "exchange in place": exchange(3, True), "sums": scatter_sums(4),
             "ahead": ahead(8, 1, "LL"), "a little ahead": ahead(2, 1, "Simple"), "crossed": crossed(),
             "relayed": relayed(), "reduce": star("reduce", 4),
             "gather at one": star("gather", 3), "scatter": star("scatter", 3), "many channels": ring(4, 40)}
    path, n_proved, n_refused, n_harmless = os.path.join(folder, "own.xml"), 0, 0, 0
    chance = random.Random(1)
    for name, root in plans.items():
        ElementTree.ElementTree(root).write(path)
        in_place = root.get("inplace") == "1"
        wrong = trouble(root, in_place, 10)
        status, text = tutti("check", path)
        if wrong or status != 0:
            fail(f"{name}: interpreter: {wrong}; the command: {text}")
        for _ in range(0 if name == "many channels" else 40):
            broken = mutate(root, chance)
            ElementTree.ElementTree(broken).write(path)
            status, text = tutti("check", path)
            try:
                wrong = trouble(broken, in_place, 30)
            except (IndexError, KeyError, ValueError):
                wrong = "the interpreter can not carry it out"
            if status not in (0, 1) or (status == 1 and not text.strip()):
                fail(f"{name}, broken: status {status}: {text}")
            if status == 0 and wrong:
                fail(f"{name}, broken: proved, but {wrong}:\n{ElementTree.tostring(broken, encoding='unicode')}")
            n_proved, n_refused = n_proved + (status == 0), n_refused + (status != 0)
            if status != 0 and not wrong:
                n_harmless += 1
                if os.environ.get("SHOW"):
                    print("refused, but no interleaving that was tried went wrong:", text.strip().splitlines()[-2:])
    print(f"{n_proved} broken plans proved, {n_refused} refused, {n_harmless} of them though no run went wrong")
    if n_refused < 100:
        fail("the plans were not broken")


# ---- faults: what a stranger's file may have, and the one sentence for it ----

HEAD = '<algo name="b" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="2" coll="broadcast" inplace="1">'
FIRST = '<gpu id="0" i_chunks="1" o_chunks="0" s_chunks="0">'
SENDS = ('<tb id="0" send="1" recv="-1" chan="0"><step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" '
         'cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>')
SECOND = '<gpu id="1" i_chunks="1" o_chunks="0" s_chunks="0">'
RECEIVES = ('<tb id="0" send="-1" recv="0" chan="0"><step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" '
            'cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>')
RIGHT = f"{HEAD}\n{FIRST}\n{SENDS}\n</gpu>\n{SECOND}\n{RECEIVES}\n</gpu>\n</algo>\n"
TWICE = RECEIVES.replace('id="0"', 'id="1"', 1)
BOMB = '<!DOCTYPE b [<!ENTITY a "aa"><!ENTITY c "&a;&a;">]>'
WAITS = RECEIVES.replace('depid="-1" deps="-1"', 'depid="0" deps="0"')
ONE = '<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>'
NOP = ('<step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>')

# (what is replaced, by what, words of the sentence)
FAULTS = [
    (HEAD, BOMB + HEAD, ":1: a DTD, an entity"),
    ('name="b"', 'name="&x;"', ":1: there is no entity 'x'"),
    ("</gpu>\n</algo>\n", "", ":7: the text ends within <gpu>"),
    ('"0"/></tb>\n</gpu>\n</algo>\n', '"0', ":6: the text ends within a value"),
    (RIGHT, "", "there is no element"),
    (RIGHT, "num_ranks 2", ":1: this is not XML"),
    ("</algo>\n", "</algo><algo/>", ":8: a second element"),
    ("</gpu>", "</gup>", ":4: </gup> ends no element that is open"),
    ('ngpus="2"', 'ngpus="3"', "gpu 2 is missing: there are to be 3"),
    ('<gpu id="1"', '<gpu id="0"', ":5: gpu 0 is given twice, first in line 2"),
    ('<gpu id="1"', '<gpu id="2"', ':5: id="2" of <gpu> is out of range: 0 to 1'),
    (RECEIVES, RECEIVES + TWICE.replace('id="1"', 'id="0"', 1), "gpu 1 has two tbs of id 0"),
    (RECEIVES, RECEIVES + TWICE.replace('id="1"', 'id="2"', 1), "gpu 1 has a tb 2, but only 2 of them"),
    (RECEIVES, RECEIVES + TWICE, "tb 0 and tb 1 of gpu 1 both receive on the connection from gpu 0 to gpu 1"),
    ('s="0" type="r"', 's="1" type="r"', ":6: step 1 of gpu 1 tb 0, where step 0 is expected"),
    ('send="1"', 'send="5"', ':3: peer send="5" of gpu 0 is out of range: there are gpus 0 to 1'),
    ('send="1"', 'send="0"', ":3: gpu 0 has itself as peer send"),
    ('send="1"', 'send="-1"', ':3: gpu 0 tb 0 sends, but it has send="-1"'),
    (RECEIVES, "", ":3: gpu 0 tb 0 sends to gpu 1 on channel 0, where no tb receives from it"),
    (SENDS, "", ":6: gpu 1 tb 0 receives from gpu 0 on channel 0, where no tb sends to it"),
    ("/></tb>\n</gpu>\n<gpu", "/>" + ONE.replace('s="0"', 's="1"') + "</tb>\n</gpu>\n<gpu",
     "sends message 1 to gpu 1 on channel 0, which nobody receives"),
    ('cnt="1"', 'cnt="2"', ":3: source i0 with cnt 2 is out of range: gpu 0 has 1 chunks of i"),
    ('nchunksperloop="1"', 'nchunksperloop="0"', ':1: nchunksperloop="0" of <algo> is out of range'),
    ('nchunksperloop="1"', 'nchunksperloop="x"', ':1: nchunksperloop="x" of <algo> is no number'),
    ('srcoff="0"', 'srcoff="1"', ":3: source i1 with cnt 1 is out of range"),
    ('dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>\n</gpu>\n</algo>',
     'dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>\n</gpu>\n</algo>',
     ":6: destination s0 with cnt 1 is out of range: gpu 1 has 0 chunks of s"),
    ('type="s"', 'type="q"', ':3: type="q" is no type of a step'),
    ('srcbuf="i"', 'srcbuf="x"', ':3: buffer "x" is none of i, o and s'),
    ('coll="broadcast"', 'coll="custom"', ':1: coll="custom" does not say what the result is to be'),
    ('inplace="1"', 'inplace="0" outofplace="0"', ":1: inplace and outofplace are both 0"),
    ('proto="Simple"', 'proto="Fast"', ":1: proto"),
    (' cnt="1"', "", ":3: <step> lacks the attribute cnt"),
    ('depid="-1" deps="-1"', 'depid="3" deps="0"', ':3: depid="3": gpu 0 has 1 tbs'),
    ('depid="-1" deps="-1"', 'depid="0" deps="9"', ':3: deps="9": gpu 0 tb 0 has 1 steps'),
    (RECEIVES, WAITS, ":6: gpu 1 tb 0 step 0 waits for ever: no step of tb 0 from step 0 on has hasdep"),
    (RECEIVES, WAITS.replace('hasdep="0"', 'hasdep="1"'), ":6: deadlock: gpu 1 tb 0 step 0"),
    (SENDS, SENDS.replace(ONE, ONE.replace('hasdep="0"', 'hasdep="1"') + NOP.replace('s="0"', 's="1"')),
     ":3: gpu 0 tb 0: a nop that no step follows"),
    (SENDS, SENDS.replace(ONE, NOP + ONE.replace('s="0"', 's="1"').replace('hasdep="0"', 'hasdep="1"')),
     "follows a nop, and waits for nothing itself"),
]


def faults(folder):
    path = os.path.join(folder, "fault.xml")
    for before, after, words in [("", "", "1 of 1 proved")] + FAULTS:
        text = RIGHT.replace(before, after, 1) if before else RIGHT
        if before and text == RIGHT:
            fail(f"the fault for '{words}' is none")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        status, said = tutti("check", path)
        if status != (1 if before else 0) or words not in said or (before and len(said.strip().splitlines()) != 1):
            fail(f"'{words}' is expected; status {status}: {said}")
    for edit, words in (
            (lambda root: root.find("gpu/tb[@id='1']/step[@s='1']").set("dstoff", "1"), "race: gpu 0 tb "),
            (lambda root: root.find("gpu/tb[@id='0']/step[@type='re']").set("srcoff", "1"), "a wrong chunk 0: it "),
            (lambda root: root.find("gpu/tb[@id='0']/step[@type='re']").set("type", "cpy"), "a wrong chunk 0: it "),
            (lambda root: root.find("gpu/tb[@id='1']/step[@s='1']").set("cnt", "2"), "receives 2 chunks, but gpu 1")):
        root = pairs(4)
        edit(root)
        ElementTree.ElementTree(root).write(path)
        status, said = tutti("check", path)
        if status != 1 or words not in said:
            fail(f"'{words}' is expected; status {status}: {said}")
    ElementTree.ElementTree(ahead(3, 1, "Simple")).write(path)
    status, said = tutti("check", path)
    if status != 1 or "deadlock: gpu 0 tb 0 step 2 (line 1) waits for room in its connection to gpu 1 tb 0" not in said:
        fail(f"no room: status {status}: {said}")
    # One pass: everybody adds up everything in the order in which it comes, its own first.
    root = plan("allreduce", 3, 1, True, [
        [((g + k) % 3, (g + k) % 3, 0, [step("s", ("i", 0), signals=1), step("r", dst=("s", k - 1), signals=1)])
         for k in (1, 2)] + [(-1, -1, 0, [step("nop", n=0, wait=(0, 1)), step("re", ("s", 0), ("i", 0), wait=(1, 1)),
                                          step("re", ("s", 1), ("i", 0))])] for g in range(3)], scratch=2)
    ElementTree.ElementTree(root).write(path)
    status, said = tutti("check", path)
    if status != 1 or "all sums are right, but replicas may differ in their last bits" not in said:
        fail(f"replicas that differ: status {status}: {said}")
    if tutti("sim", path, "--bytes", "1M")[0] != 0:
        fail("a plan whose replicas may differ can not be simulated")
    print(f"{len(FAULTS) + 5} faults")


def main(*parts):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for part in parts:
            part(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(faults, exports, own_plans))
