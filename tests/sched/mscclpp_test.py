# SPDX-License-Identifier: BSD-3-Clause
"""Plans of MSCCL++ against an interpreter that shares nothing with the library: right ones are proved, each fault is
told in one sentence, and what the command proves of plans that are broken at random is right in every interleaving.

usage: mscclpp_test.py TUTTI"""

import copy
import json
import os
import random
import sys

from msccl_test import MASK, Wrong, fail, main, tutti


def one_sided(collective, in_place, gpus, scratch=0, outputs=None):
    """gpus: for each of two GPUs its blocks, as lists of operations; buffers of the peer are (i, o, s)."""
    made = []
    for g, blocks in enumerate(gpus):
        made.append({
            "id": g, "input_chunks": 2 if outputs is None else 1, "output_chunks": outputs or 2,
            "scratch_chunks": scratch,
            "channels": [{"channel_type": "memory", "connected_to": [1 - g]}],
            "remote_buffers": [{"rank": 1 - g, "type": t, "access_channel_types": ["memory"]} for t in "ios"],
            "threadblocks": [{"id": b, "ops": ops, "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                              "remote_buffer_refs": [{"access_channel_type": "memory",
                                                      "remote_buffer_ids": [0, 1, 2]}]}
                             for b, ops in enumerate(blocks)]})
    return {"name": "own", "collective": collective, "protocol": "Simple", "inplace": in_place, "gpus": made}


def here(buffer, index, size=1):
    return {"type": buffer, "index": index, "size": size}


def there(buffer, index, size=1):
    return {"buffer_id": "ios".index(buffer), "index": index, "size": size}


def op(name, src=None, dst=None, **more):
    buffers = {} if src is None else {"src_buff": src, "dst_buff": dst}
    return {"name": name, "channel_type": "memory", **({} if src else {"channel_ids": [0]}), **buffers, **more}


def reading(g):
    """Each adds what the peer has to its own chunk, and writes the sum to both."""
    return [op("rlxsignal"), op("rlxwait"),
            op("rres", [here("i", g), there("i", g)], [here("i", g), there("i", g)], reduce_op="sum"),
            op("signal"), op("wait")]


def packets(g, part):
    share = {"tbg_info": {"tb_id": part, "tbg_size": 2}}
    return [op("ppkt", [here("i", 1 - g)], [there("s", 0)], **share),
            op("respkt", [here("i", g), here("s", 0)], [here("i", g), there("s", 1)], reduce_op="sum", **share),
            op("upkt", [here("s", 1)], [here("i", 1 - g)], **share)]


def putting(g):
    return [op("copy", [here("i", 0)], [here("o", g)]), op("put", [here("i", 0)], [there("o", g)]), op("signal"),
            op("wait")]


def scratch_sums(g):
    """Puts all to the peer's SCRATCH, then adds that."""
    return [op("put", [here("i", 0, 2)], [there("s", 0, 2)]), op("signal"), op("wait"),
            op("re", [here("i", 0, 2), here("s", 0, 2)], [here("i", 0, 2)], reduce_op="sum")]


class OneSidedRun:
    """One interleaving of a plan of this file's one-sided form, by a seed."""

    def __init__(self, root, seed):
        self.root, self.chance, self.n = root, random.Random(seed), len(root["gpus"])
        gathers, self.in_place = root["collective"] == "allgather", root["inplace"]
        self.parts = 2  # a chunk's, which the blocks of a group share
        self.n_out = root["gpus"][0]["output_chunks"] * self.parts
        self.n_in = root["gpus"][0]["input_chunks"] * self.parts
        self.value = {(g, c): self.chance.getrandbits(64) for g in range(self.n) for c in range(self.n_in)}
        self.memory, self.packets = {}, set()
        for (g, c), value in self.value.items():
            self.memory[self.cell(g, "i", c)] = value
        total = lambda c: sum(self.value[g, c] for g in range(self.n)) & MASK
        self.wanted = [self.value[c // self.n_in, c % self.n_in] if gathers else total(c) for c in range(self.n_out)]
        self.signals, self.waits = [0] * self.n, [0] * self.n

    def cell(self, g, buffer, c):
        if self.in_place and buffer == "i":
            return g, "o", c + (g * self.n_in if self.n_in < self.n_out else 0)
        return g, buffer, c

    def cells(self, g, one, share):
        """The cells of an access, all of which must be there."""
        owner, buffer = (g, one["type"]) if "type" in one else (1 - g, "ios"[one["buffer_id"]])
        n = one["size"] * self.parts // share["tbg_size"]
        first = one["index"] * self.parts + share["tb_id"] * n
        room = {"i": self.n_in, "o": self.n_out, "s": self.root["gpus"][owner]["scratch_chunks"] * self.parts}[buffer]
        if first + n > room:
            raise Wrong("out of range")
        return [self.cell(owner, buffer, first + k) for k in range(n)]

    def reads(self, g, one):
        share = one.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        return [self.cells(g, each, share) for each in one["src_buff"]]

    def ready(self, g, one):
        if one["name"].endswith("wait"):
            return self.signals[1 - g] > self.waits[g]
        if one["name"] in ("upkt", "respkt"):
            cells = self.reads(g, one)
            return all(cell in self.memory for cell in (cells[0] if one["name"] == "upkt" else sum(cells[1:], [])))
        return True

    def go(self, g, one):
        name = one["name"]
        self.signals[g] += name.endswith("signal")
        self.waits[g] += name.endswith("wait")
        if "src_buff" not in one:
            return
        sources = self.reads(g, one)
        share = one.get("tbg_info", {"tb_id": 0, "tbg_size": 1})
        for cells in sources:
            if any(cell not in self.memory for cell in cells):
                raise Wrong("reads what holds nothing")
        result = [sum(self.memory[cells[k]] for cells in sources) & MASK for k in range(len(sources[0]))]
        for each in one["dst_buff"]:
            for cell, value in zip(self.cells(g, each, share), result):
                self.memory[cell] = value

    def all(self):
        blocks = [(g["id"], tb["ops"]) for g in self.root["gpus"] for tb in g["threadblocks"]]
        at, rank = [0] * len(blocks), [self.chance.random() for _ in blocks]
        while True:
            able = [b for b, (g, ops) in enumerate(blocks) if at[b] < len(ops) and self.ready(g, ops[at[b]])]
            if not able:
                break
            b = max(able, key=lambda b: rank[b])
            if self.chance.random() < 0.2:
                rank[b] = self.chance.random() - 1
            self.go(blocks[b][0], blocks[b][1][at[b]])
            at[b] += 1
        if any(at[b] < len(ops) for b, (_, ops) in enumerate(blocks)):
            raise Wrong("deadlock")
        for g in range(self.n):
            for c, wanted in enumerate(self.wanted):
                if self.memory.get(self.cell(g, "o", c)) != wanted:
                    raise Wrong("a wrong result")


def one_sided_trouble(root):
    for seed in range(40):
        try:
            OneSidedRun(root, seed).all()
        except Wrong as wrong:
            return str(wrong)
    return None


def one_sided_mutants(path, root, chance, counts):
    """Plans with a fault in one place: what is proved of them is right."""
    for _ in range(40):
        broken = copy.deepcopy(root)
        ops = chance.choice(chance.choice(broken["gpus"])["threadblocks"])["ops"]
        k = chance.randrange(len(ops))
        what = chance.randrange(5)
        if what == 0:
            ops.pop(k)
        elif what == 1:
            j = chance.randrange(len(ops))
            ops[k], ops[j] = ops[j], ops[k]
        elif what == 2 and "src_buff" not in ops[k]:
            ops[k]["name"] = chance.choice(("signal", "wait", "rlxsignal", "rlxwait"))
        elif "src_buff" in ops[k]:
            one = chance.choice(ops[k]["src_buff"] + ops[k]["dst_buff"])
            one["index"] = chance.randrange(2)
            if what == 4 and "type" in one:
                one["type"] = chance.choice("ios")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(broken, file)
        status, said = tutti("check", path)
        wrong = one_sided_trouble(broken)
        counts[status == 0] += 1
        if status not in (0, 1) or (status == 0 and wrong):
            fail(f"MSCCL++, broken: status {status}, but {wrong}: {said}{json.dumps(broken)}")


def one_sided_plans(folder):
    path = os.path.join(folder, "plan.json")
    both = lambda make: [[make(0)], [make(1)]]
    shared = [[packets(g, 0), packets(g, 1)] for g in range(2)]
    chance, counts = random.Random(2), {True: 0, False: 0}
    change = lambda blocks, g, k, **what: blocks[g][0][k].update(what)
    cases = [
        ("allreduce", True, both(reading), {}, None, "1 of 1 proved"),
        ("allreduce", True, shared, {"scratch": 2}, None, "1 of 1 proved"),
        ("allgather", False, both(putting), {"outputs": 2}, None, "1 of 1 proved"),
        ("allreduce", True, both(scratch_sums), {"scratch": 2}, None, "1 of 1 proved"),
        ("allreduce", True, both(scratch_sums), {"scratch": 2}, lambda b: b[1][0].pop(2), "race: gpu 1 block 0 "),
        ("allreduce", True, both(scratch_sums), {"scratch": 2}, lambda b: change(b, 0, 1, name="rlxsignal"),
         "and neither semaphores nor packets order them"),
        ("allreduce", True, both(scratch_sums), {"scratch": 2}, lambda b: b[0][0].pop(1),
         "deadlock: gpu 1 block 0 (line 1) waits for signal 0 of gpu 0 for ever: 0 come"),
        ("allreduce", True, both(scratch_sums), {"scratch": 2}, lambda b: b[0][0].append(op("signal")),
         "gpu 0 signals gpu 1 2 times on a channel, where that waits 1 times"),
        ("allreduce", True, both(scratch_sums), {"scratch": 2}, lambda b: change(b, 0, 3, src_buff=[here("i", 0, 2)]),
         "ends with a wrong chunk 0: it"),
        ("allreduce", True, shared, {"scratch": 2}, lambda b: b[0][0].pop(0), "waits for packets for ever"),
        ("allreduce", True, both(reading), {}, lambda b: change(b, 0, 2, reduce_op="max"), "reduce_op is not sum"),
        ("allreduce", True, both(reading), {}, lambda b: change(b, 0, 2, name="glres"),
         'operation "glres" is not read'),
        ("allreduce", True, both(reading), {}, lambda b: change(b, 0, 2, channel_type="switch"),
         "channels of type switch are not read"),
        ("allreduce", True, both(reading), {}, lambda b: change(b, 0, 2, src_buff=[here("i", 2)]),
         "i2 with size 1 is out of range: gpu 0 has 2 chunks of it"),
        ("allreduce", True, both(reading), {}, lambda b: change(b, 0, 2, src_buff=[here("i", 0), there("s", 0)]),
         "s0 with size 1 is out of range: gpu 1 has 0"),
        ("allgather", False, both(putting), {"outputs": 2}, lambda b: b[0][0].pop(0),
         "gpu 0 never writes o0 of its result"),
        ("custom", True, both(reading), {}, None, "does not say what the result is to be"),
    ]
    for collective, in_place, blocks, more, edit, words in cases:
        blocks = copy.deepcopy(blocks)
        if edit:
            edit(blocks)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(one_sided(collective, in_place, blocks, **more), file)
        status, said = tutti("check", path)
        if status != (0 if "proved" in words else 1) or words not in said:
            fail(f"MSCCL++: '{words}' is expected; status {status}: {said}")
        root = one_sided(collective, in_place, blocks, **more)
        if "proved" in words and one_sided_trouble(root):
            fail(f"the interpreter finds in a right plan: {one_sided_trouble(root)}")
        if "proved" in words:
            one_sided_mutants(path, root, chance, counts)
    print(f"{len(cases)} one-sided plans; of broken ones {counts[True]} proved, {counts[False]} refused")


if __name__ == "__main__":
    sys.exit(main(one_sided_plans))
