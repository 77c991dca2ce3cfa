# SPDX-License-Identifier: BSD-3-Clause
"""All collectives and v forms, over all types and operations, in and out of place, on one to four ranks: against
reference.py, bit for bit."""

import array
import struct
import unittest

import ranks
import tutti
from reference import TYPES, bytes_of, encode, ops_of, reduced, values

COUNTS = (0, 1, 3, 257)


def blocks(name, rank, size, count):
    """`size` blocks of a rank, as one list."""
    return values(name, rank, size * count)


def u64(numbers):
    return array.array("Q", numbers)


class Calls:
    """One communicator and one type: each method runs a collective and compares what it gives."""

    def __init__(self, test, comm, name, count):
        self.test, self.comm, self.name, self.count = test, comm, name, count
        self.size, self.rank = comm.size, comm.rank

    def own(self, rank=None):
        return values(self.name, self.rank if rank is None else rank, self.count)

    def space(self, count):
        return bytearray(b"\x55" * (count * bytes_of(self.name)))

    def same(self, got, expected, what):
        self.test.assertEqual(bytes(got), bytes(encode(self.name, expected)), f"{what} of {self.name} x {self.count}")

    def run(self, call, *args, **options):
        getattr(self.comm, call)(*args, dtype=self.name, **options)

    def reductions(self):
        for op in ops_of(self.name):
            rows = [self.own(rank) for rank in range(self.size)]
            expected, root = reduced(self.name, op, rows), self.size - 1
            send, recv = encode(self.name, self.own()), self.space(self.count)
            self.run("all_reduce", send, recv, op)
            self.same(recv, expected, f"all_reduce {op}")
            self.same(send, self.own(), "what was sent")
            self.run("all_reduce", send, op=op)
            self.same(send, expected, f"all_reduce {op} in place")
            send = encode(self.name, self.own())
            self.run("reduce", send, recv if self.rank == root else None, op, root)
            self.same(recv, expected, f"reduce {op}")
            self.run("scan", send, recv, op)
            self.same(recv, reduced(self.name, op, rows[:self.rank + 1]), f"scan {op}")
            recv = self.space(self.count)
            self.run("exscan", send, recv, op)
            if self.rank:
                self.same(recv, reduced(self.name, op, rows[:self.rank]), f"exscan {op}")
            else:
                self.test.assertEqual(recv, self.space(self.count))

    def scattered_reductions(self):
        for op in ops_of(self.name)[:2]:
            rows = [blocks(self.name, rank, self.size, self.count) for rank in range(self.size)]
            expected = reduced(self.name, op, rows)[self.rank * self.count:(self.rank + 1) * self.count]
            send, recv = encode(self.name, rows[self.rank]), self.space(self.count)
            self.run("reduce_scatter", send, recv, op)
            self.same(recv, expected, f"reduce_scatter {op}")
            self.run("reduce_scatter", send, op=op)
            width = self.count * bytes_of(self.name)
            self.same(send[self.rank * width:(self.rank + 1) * width], expected, f"reduce_scatter {op} in place")

    def movements(self):
        everything = [value for rank in range(self.size) for value in self.own(rank)]
        width, root = self.count * bytes_of(self.name), self.size // 2
        send, recv = encode(self.name, self.own()), self.space(self.size * self.count)
        self.run("all_gather", send, recv)
        self.same(recv, everything, "all_gather")
        recv[:] = self.space(self.size * self.count)
        recv[self.rank * width:(self.rank + 1) * width] = send
        self.run("all_gather", None, recv)
        self.same(recv, everything, "all_gather in place")
        recv = self.space(self.size * self.count)
        self.run("gather", send, recv if self.rank == root else None, root)
        if self.rank == root:
            self.same(recv, everything, "gather")
        row = encode(self.name, blocks(self.name, root, self.size, self.count))
        recv = self.space(self.count)
        self.run("scatter", row if self.rank == root else None, recv, root)
        self.test.assertEqual(recv, row[self.rank * width:(self.rank + 1) * width], "scatter")
        buffer = encode(self.name, self.own()) if self.rank == root else self.space(self.count)
        self.run("broadcast", buffer, root)
        self.same(buffer, self.own(root), "broadcast")

    def exchanges(self):
        width = self.count * bytes_of(self.name)
        rows = [encode(self.name, blocks(self.name, rank, self.size, self.count)) for rank in range(self.size)]
        column = b"".join(row[self.rank * width:(self.rank + 1) * width] for row in rows)
        send, recv = bytearray(rows[self.rank]), self.space(self.size * self.count)
        self.run("all_to_all", send, recv)
        self.test.assertEqual(recv, column, "all_to_all")
        self.run("all_to_all", send)
        self.test.assertEqual(send, column, "all_to_all in place")

    def unequal(self):
        """v forms: rank r has count + r elements, and between blocks there is a gap."""
        element = bytes_of(self.name)
        counts = [self.count + rank for rank in range(self.size)]
        displs = [sum(counts[:rank]) + rank for rank in range(self.size)]
        parts = [encode(self.name, values(self.name, rank, counts[rank])) for rank in range(self.size)]
        packed, send = b"".join(parts), parts[self.rank]
        recv = bytearray(len(packed))
        self.run("all_gather_v", send, recv, counts)
        self.test.assertEqual(recv, packed, "all_gather_v")
        recv = bytearray(b"\x55" * (len(packed) + self.size * element))
        self.run("gather_v", send, recv, counts, displs)
        for rank, part in enumerate(parts) if self.rank == 0 else ():
            self.test.assertEqual(recv[displs[rank] * element:][:len(part)], part, "gather_v")
            self.test.assertEqual(recv[displs[rank] * element + len(part):][:element], b"\x55" * element, "the gap")
        recv = bytearray(len(send))
        self.run("scatter_v", packed if self.rank == 0 else None, recv, counts if self.rank == 0 else None)
        self.test.assertEqual(recv, send, "scatter_v")
        rows = [values(self.name, rank, sum(counts)) for rank in range(self.size)]
        begin = sum(counts[:self.rank])
        self.run("reduce_scatter_v", encode(self.name, rows[self.rank]), recv, counts)
        self.same(recv, reduced(self.name, "sum", rows)[begin:begin + counts[self.rank]], "reduce_scatter_v")

    def unequal_exchanges(self):
        """Rank r sends count + r + s elements to rank s."""
        counts = [self.count + self.rank + rank for rank in range(self.size)]
        part = {(r, s): encode(self.name, values(self.name, r + 2 * s, self.count + r + s))
                for r in range(self.size) for s in range(self.size)}
        send = b"".join(part[self.rank, rank] for rank in range(self.size))
        column = b"".join(part[rank, self.rank] for rank in range(self.size))
        recv = bytearray(len(column))
        self.run("all_to_all_v", send, recv, counts, counts)
        self.test.assertEqual(recv, column, "all_to_all_v")
        recv, got, status = bytearray(len(column)), u64([0] * self.size), array.array("i", [7])
        self.run("all_to_all_v_dynamic", send, recv, u64(counts), got, status=status)
        self.test.assertEqual((recv, list(got), status[0]), (column, counts, 0), "all_to_all_v_dynamic")


def every_type(test, comm):
    for name in TYPES:
        for count in COUNTS:
            calls = Calls(test, comm, name, count)
            for one in (calls.reductions, calls.scattered_reductions, calls.movements, calls.exchanges, calls.unequal,
                        calls.unequal_exchanges):
                one()


class Collectives(unittest.TestCase):
    """By processes and by threads."""

    def test_every_type_on_one_to_four_ranks(self):
        for size in (1, 2, 3, 4):
            with self.subTest(size=size):
                ranks.processes(size, lambda comm: every_type(self, comm))

    def test_threads(self):
        def run(comm):
            for name in ("int32", "bfloat16"):
                calls = Calls(self, comm, name, 100)
                calls.reductions()
                calls.exchanges()

        ranks.threads(3, run)

    def test_typed_buffers_tell_their_type(self):
        def run(comm):
            for code in "bBhHiIlLqQfd":
                x = array.array(code, [comm.rank + 1] * 5)
                comm.all_reduce(x)
                self.assertEqual(x, array.array(code, [comm.size * (comm.size + 1) // 2] * 5), code)
            flags = memoryview(bytearray([comm.rank == 0, 0])).cast("?")
            comm.all_reduce(flags, op="max")
            self.assertEqual(list(flags), [True, False])

        ranks.processes(2, run)

    def test_average_and_factors(self):
        def run(comm):
            x = array.array("d", [comm.rank, 3.0])
            comm.all_reduce(x, op=tutti.AVG)
            self.assertEqual(list(x), [(comm.size - 1) / 2, 3.0])
            for premul in (0.5, array.array("d", [0.5])):
                x = array.array("d", [2.0 + comm.rank])
                comm.all_reduce(x, op="premul_sum", premul=premul)
                self.assertEqual(x[0], 0.5 * sum(2.0 + rank for rank in range(comm.size)))
            x = array.array("f", [comm.rank + 1.0] * 512)
            comm.all_reduce(x, wire="bfloat16", wire_block=64)
            self.assertEqual(set(x), {comm.size * (comm.size + 1) / 2})

        ranks.processes(3, run)

    def test_sparse_blocks(self):
        def run(comm):
            recv = array.array("f", [9.0] * 8)
            values_ = array.array("f", [1.0, 2.0, 3.0, 4.0])
            comm.all_reduce_sparse_block(values_, array.array("q", [comm.rank, 3]), recv, 2)
            expected = [0.0] * 8
            for rank in range(comm.size):
                for block, pair in ((rank, (1.0, 2.0)), (3, (3.0, 4.0))):
                    expected[2 * block] += pair[0]
                    expected[2 * block + 1] += pair[1]
            self.assertEqual(list(recv), expected)

        ranks.processes(2, run)

    def test_named_algorithm_and_barrier(self):
        def run(comm):
            for algorithm in ("ring", "tree:3"):
                x = array.array("i", range(100))
                comm.all_reduce(x, algorithm=algorithm, label="a label", timeout=20)
                self.assertEqual(list(x), [comm.size * i for i in range(100)])
            comm.barrier()
            self.assertEqual(struct.unpack("i", struct.pack("i", comm.size))[0], comm.size)

        ranks.processes(3, run)


if __name__ == "__main__":
    ranks.main()
