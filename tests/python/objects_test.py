# SPDX-License-Identifier: BSD-3-Clause
"""What is around the collectives: messages, groups, other communicators, works, awaiting, persistent calls, windows,
operations of one's own, errors, signals, fork, threads, and calls that survive a death."""

import array
import asyncio
import os
import signal
import threading
import time
import unittest

import ranks
import tutti


def ints(*numbers):
    return array.array("i", numbers)


class Calls(unittest.TestCase):
    """Messages, groups, works."""

    def test_messages(self):
        def run(comm):
            if comm.rank == 0:
                comm.send(ints(1, 2, 3), 1, 7)
                comm.send(ints(4), 1)
            elif comm.rank == 1:
                while not (found := comm.probe()):
                    pass
                self.assertEqual((found.source, found.tag, found.bytes), (0, 7, 12))
                x = ints(0, 0, 0, 0)
                self.assertEqual(comm.recv(x), (0, 7, 12))
                self.assertEqual(list(x), [1, 2, 3, 0])
                work = comm.recv(x, 0, 0, async_op=True)
                self.assertIs(work.wait(), True)
                self.assertEqual((work.result, x[0]), ((0, 0, 4), 4))
                self.assertIsNone(comm.probe(0, 3))
            right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
            x = ints(0)
            self.assertEqual(comm.sendrecv(ints(comm.rank), x, right, left).source, left)
            self.assertEqual(x[0], left)

        ranks.processes(3, run)

    def test_truncated_message(self):
        def run(comm):
            if comm.rank == 0:
                return comm.send(ints(1, 2), 1)
            with self.assertRaises(tutti.TruncatedError):
                comm.recv(ints(0), 0)

        ranks.processes(2, run)

    def test_groups(self):
        def run(comm):
            x, y, z = ints(comm.rank), ints(0), ints(comm.rank + 1)
            with tutti.group():
                comm.recv(y, (comm.rank + 1) % comm.size)
                comm.send(x, (comm.rank - 1) % comm.size)
                comm.all_reduce(z)
            self.assertEqual(y[0], (comm.rank + 1) % comm.size)
            self.assertEqual(z[0], comm.size * (comm.size + 1) // 2)
            with tutti.group(async_op=True) as group:
                comm.all_reduce(z, op="max")
            self.assertIs(group.work.wait(), True)
            with self.assertRaises(ZeroDivisionError):
                with tutti.group():
                    comm.all_reduce(z)
                    1 / 0
            with self.assertRaisesRegex(tutti.ArgumentError, "the group has"):
                with tutti.group():
                    comm.all_reduce(z, async_op=True)
            with tutti.group():
                pass
            x = ints(1)
            comm.all_reduce(x)
            self.assertEqual(x[0], comm.size)

        ranks.processes(3, run)

    def test_works(self):
        def run(comm):
            x, told = ints(*[comm.rank] * 10000), threading.Event()
            work = comm.all_reduce(x, async_op=True)
            work.notify(told.set)
            self.assertIs(work.wait(20), True)
            self.assertIs(work.test(), True)
            self.assertIs(told.wait(20), True)
            self.assertEqual(x[7], sum(range(comm.size)))
            self.assertIsNone(work.error)
            self.assertGreater(work.duration_ns, 0)
            self.assertEqual(work.sequence, comm.sequence)
            self.assertEqual(comm.contributors(), list(range(comm.size)))
            self.assertEqual(comm.contributors(work), list(range(comm.size)))
            held = memoryview(bytearray(8))  # a view that is let go before the call is over stays taken until then
            work = comm.recv(held, (comm.rank + 1) % comm.size, 5, async_op=True)
            self.assertIs(work.wait(0.001), False)
            with self.assertRaises(BufferError):
                held.release()
            del work
            comm.barrier()
            comm.send(bytes(8), (comm.rank - 1) % comm.size, 5)
            comm.barrier()
            end = time.monotonic() + 20
            while time.monotonic() < end:
                try:
                    held.release()
                    break
                except BufferError:
                    time.sleep(0.001)
            else:
                self.fail("the buffer was not given back")

        ranks.processes(2, run)

    def test_await(self):
        def run(comm):
            async def calls():
                x, y = ints(comm.rank), ints(0)
                works = [comm.all_reduce(x, async_op=True), comm.recv(y, (comm.rank + 1) % comm.size, async_op=True),
                         comm.send(ints(comm.rank), (comm.rank - 1) % comm.size, async_op=True)]
                results = await asyncio.gather(*(asyncio.wait_for(one(work), 20) for work in works))
                self.assertEqual(results[1].source, (comm.rank + 1) % comm.size)
                self.assertEqual((x[0], y[0]), (sum(range(comm.size)), (comm.rank + 1) % comm.size))
                waiting = asyncio.ensure_future(one(comm.recv(y, (comm.rank + 1) % comm.size, 9, async_op=True)))
                await asyncio.sleep(0)
                waiting.cancel()  # the call goes on
                comm.send(ints(3), (comm.rank - 1) % comm.size, 9)
                comm.barrier()

            async def one(work):
                return await work

            asyncio.run(calls())

        ranks.processes(2, run)
        ranks.threads(2, run)

    def test_persistent(self):
        def run(comm):
            x, y = ints(0), ints(0)
            call = comm.all_reduce(x, y, persistent=True)
            self.assertEqual(y[0], 0)
            for number in range(4):
                x[0] = number + comm.rank
                if number % 2:
                    call.start()
                else:
                    self.assertIs(call.start(async_op=True).wait(), True)
                self.assertEqual(y[0], sum(number + rank for rank in range(comm.size)))
            with self.assertRaisesRegex(tutti.UnsupportedError, "int32 can not be quantised"):
                comm.all_reduce(x, wire="int8", persistent=True)
            comm.barrier()
            twin = comm.dup()
            call = twin.broadcast(x, persistent=True)
            call.start(async_op=True)  # forgotten, and over before its communicator is closed
            twin.close()
            with self.assertRaisesRegex(tutti.ArgumentError, "closed"):
                call.start()

        ranks.processes(2, run)

    def test_own_operations(self):
        def run(comm):
            def later(left, right, out, dtype):
                self.assertEqual(dtype, "int32")
                for i, pair in enumerate(zip(left.tolist(), right.tolist())):
                    out[i] = pair[1] * 10 + pair[0]

            op = tutti.UserOp(comm, later, commutes=False)
            x = ints(comm.rank + 1, 2)
            comm.all_reduce(x, op=op)
            expected = 1
            for rank in range(1, comm.size):
                expected = (rank + 1) * 10 + expected
            self.assertEqual(x[0], expected)

            def wrong(left, right, out, dtype):
                raise KeyError("mine")

            try:
                comm.all_reduce(ints(1), op=tutti.UserOp(comm, wrong))
            except KeyError as error:
                self.assertEqual(error.args, ("mine",))

        ranks.processes(3, run)

    def test_windows(self):
        def run(comm):
            memory = comm.mem_alloc(64)
            right = (comm.rank + 1) % comm.size
            with comm.window(memory, n_signals=4) as window:
                self.assertEqual(window.n_signals, 4)
                window.put_signal(ints(comm.rank, 7), right, 8, index=2)
                window.wait_signal(1, index=2)
                self.assertEqual(memoryview(memory)[8:16].cast("i").tolist(), [(comm.rank - 1) % comm.size, 7])
                got = ints(0, 0)
                self.assertIs(window.get(got, right, 8, async_op=True).wait(), True)
                self.assertEqual(list(got), [comm.rank, 7])
                comm.barrier()
                for _ in range(3):
                    window.fetch_add(2, 0)
                window.flush()
                comm.barrier()
                if comm.rank == 0:
                    total = 6 * comm.size
                    self.assertEqual(window.compare_swap(total, 5, 0), total)
                    self.assertEqual(memoryview(memory)[:8].cast("Q")[0], 5)
                window.fence()
                window.signal(right, 3, 9, "set")
                window.wait_signal(9, 3, "eq")
                window.signal_write(1, index=3)
                self.assertEqual(window.signal_read(3), 1)
                self.assertEqual(len(window.peer(comm.rank)), 64)
                with self.assertRaisesRegex(tutti.ArgumentError, "close them first"):
                    comm.close()
                with self.assertRaisesRegex(tutti.ArgumentError, "put"):
                    window.put(bytes(65), right)
                comm.barrier()
            with self.assertRaisesRegex(tutti.ArgumentError, "the window is closed"):
                window.flush()
            del memory

        ranks.processes(2, run)


class Communicators(unittest.TestCase):
    """How they are made, asked, and ended."""

    def test_split_dup_and_names(self):
        def run(comm):
            half = comm.split(comm.rank % 2, -comm.rank)
            x = ints(comm.rank)
            half.all_reduce(x)
            self.assertEqual(x[0], sum(rank for rank in range(4) if rank % 2 == comm.rank % 2))
            self.assertEqual((half.size, half.rank), (2, 1 - comm.rank // 2))
            self.assertIsNone(comm.split(tutti.UNDEFINED if comm.rank else 5) if comm.rank else None)
            if comm.rank == 0:
                self.assertEqual(comm.split(5).size, 1)
            twin = comm.dup()
            self.assertNotEqual(twin.id, comm.id)
            twin.timeout = 12.5
            self.assertEqual((twin.timeout, twin.device, twin.state()), (12.5, tutti.DEVICE_NONE, True))
            twin.close()
            twin.close()
            self.assertTrue(twin.closed)
            with self.assertRaisesRegex(tutti.ArgumentError, "closed"):
                twin.barrier()
            self.assertTrue(comm.flush(1))

        ranks.processes(4, run)

    def test_options_and_contexts(self):
        def run(comm):
            self.assertEqual(comm.size, 2)

        context = tutti.Context({"backends": "off"})
        with tutti.Comm(0, 1, name="alone", context=context) as comm:
            comm.barrier()
        with self.assertRaisesRegex(tutti.ArgumentError, "nonsense"):
            tutti.Context({"nonsense": "1"})
        self.assertEqual(tutti.option_get("timeout")[1], 1800 * 10**9)
        pending = tutti.Comm(0, 1, name="later", nonblocking=True)
        while not pending.state():
            time.sleep(0.001)
        pending.barrier()
        ranks.threads(2, run)

    def test_shrink_after_a_death(self):
        def run(comm):
            if comm.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            with self.assertRaises(tutti.PeerDeadError) as caught:
                comm.barrier()
            self.assertEqual((caught.exception.peer, caught.exception.rank, caught.exception.scope),
                             (1, comm.rank, "peer"))
            self.assertIsInstance(caught.exception, ConnectionError)
            with comm.shrink() as rest:
                x = ints(1)
                rest.all_reduce(x)
                self.assertEqual(x[0], 2)

        ranks.processes(3, run, died=(1,))

    def test_calls_survive(self):
        def run(comm):
            x = array.array("d", [comm.rank + 1.0])
            comm.all_reduce(x)
            self.assertEqual(x[0], 6.0)
            if comm.rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            x = array.array("d", [comm.rank + 1.0])
            comm.all_reduce(x)
            self.assertEqual((comm.contributors(), x[0]), ([0, 1], 3.0))
            self.assertEqual(comm.admit(), [])
            comm.barrier()

        ranks.processes(3, run, died=(2,), survive=True)


class Errors(unittest.TestCase):
    """Sentences, classes, and what is left of the communicator."""

    def test_arguments(self):
        def run(comm):
            x = ints(1, 2, 3)
            for made_by_calls in (tutti.Work, tutti.Persistent, tutti.Window, type(comm.mem_alloc(8))):
                self.assertRaisesRegex(TypeError, "made by the calls of a communicator", made_by_calls)
            with self.assertRaisesRegex(TypeError, "needs 'send'"):
                comm.all_reduce()
            with self.assertRaisesRegex(TypeError, "no argument 'nonsense'"):
                comm.all_reduce(x, nonsense=1)
            with self.assertRaisesRegex(TypeError, "twice"):
                comm.all_reduce(x, send=x)
            with self.assertRaisesRegex(TypeError, "at most 3"):
                comm.all_reduce(x, x, "sum", 4)
            with self.assertRaisesRegex(TypeError, "is a <class 'int'>, which shows no memory"):
                comm.all_reduce(5)
            with self.assertRaisesRegex(ValueError, "op is nonsense: it is sum, prod"):
                comm.all_reduce(x, op="nonsense")
            with self.assertRaisesRegex(ValueError, "timeout is -1"):
                comm.all_reduce(x, timeout=-1)
            refused = ((lambda: comm.all_reduce(b"1234", dtype="int32"), "send is read-only"),
                       (lambda: comm.all_reduce(memoryview(x)[::2]), "send is not contiguous"),
                       (lambda: comm.all_reduce(x, ints(1)), "recv has 1 elements, and should have 3"),
                       (lambda: comm.all_gather(x, ints(1)), "recv has 1 elements"),
                       (lambda: comm.all_reduce(x, array.array("d", [1] * 3)), "recv is float64, and the other buffer"),
                       (lambda: comm.all_reduce(bytearray(3), dtype="int32"), "no whole number of int32"),
                       (lambda: comm.all_gather_v(x, ints(*[0] * 6), [3]), "counts has 1 numbers"),
                       (lambda: comm.all_gather_v(x, ints(0), [3, 3]), "reach beyond"),
                       (lambda: comm.all_to_all_v(x, None, [1, 1], [1, 1]), "recv is missing"),
                       (lambda: comm.all_reduce(array.array("f", [1]), op="band"), "band"),
                       (lambda: comm.broadcast(x, 9), "root"))
            for call, text in refused:
                with self.assertRaisesRegex(tutti.CallError, text) as caught:
                    call()
                self.assertEqual(caught.exception.rank, comm.rank)
                self.assertIn(caught.exception.status, (tutti.Status.ARGUMENT, tutti.Status.UNSUPPORTED))
            with self.assertRaisesRegex(tutti.ArgumentError, "^all_gather #1 on rank "):
                comm.all_gather(x, ints(1))
            comm.all_reduce(x)
            self.assertEqual(list(x), [2, 4, 6])

        ranks.processes(2, run)

    def test_mismatch_and_deadline(self):
        def run(comm):
            twin = comm.dup()
            with self.assertRaises(tutti.CommError) as caught:
                comm.all_reduce(ints(1) if comm.rank else ints(1, 2))
            self.assertEqual(caught.exception.collective, "all_reduce")
            self.assertEqual(caught.exception.status, tutti.Status.MISMATCH)
            self.assertGreater(caught.exception.sequence, 0)
            if comm.rank == 0:
                with self.assertRaises(TimeoutError) as late:
                    twin.all_reduce(ints(1), timeout=0.2)
                self.assertIsInstance(late.exception, tutti.TimeoutError)
            else:
                with self.assertRaises(tutti.CommError):
                    twin.recv(ints(1), 0)
            twin.abort("done")

        ranks.processes(2, run)

    def test_a_signal_ends_a_wait_and_the_call_goes_on(self):
        def run(comm):
            x, message = ints(comm.rank), ints(0)
            if comm.rank == 0:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                with self.assertRaises(KeyboardInterrupt):
                    comm.recv(message, 1)
                comm.send(x, 1)
            else:
                comm.recv(x, 0)
                comm.send(ints(5), 0)
            comm.barrier()
            end = time.monotonic() + 20
            while comm.rank == 0 and message[0] != 5 and time.monotonic() < end:
                comm.flush(0.01)
            self.assertEqual(message[0], 0 if comm.rank else 5)

        ranks.processes(2, run)

    def test_a_signal_ends_a_creation(self):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with tutti.StoreServer() as server, self.assertRaises(KeyboardInterrupt):
            tutti.Comm(0, 2, store=server.address)

    def test_fork(self):
        with tutti.Comm(0, 1, name="fork") as comm:
            pid = os.fork()
            if pid == 0:
                try:
                    comm.barrier()
                except tutti.ArgumentError:
                    with tutti.Comm(0, 1, name="child") as own:
                        own.barrier()
                        os._exit(7)
                os._exit(1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 7)
            comm.barrier()

    def test_many_threads_on_one_communicator(self):
        def run(comm):
            twins = [comm.dup() for _ in range(4)]
            sums = []

            def work(twin):
                x = ints(0)
                for number in range(50):
                    x[0] = number
                    twin.all_reduce(x)
                sums.append(x[0])

            threads = [threading.Thread(target=work, args=(twin,)) for twin in twins]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sums, [49 * comm.size] * 4)

        ranks.processes(2, run)


if __name__ == "__main__":
    ranks.main()
