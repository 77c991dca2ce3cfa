# SPDX-License-Identifier: BSD-3-Clause
# timeout: 3000
# short: Natives
"""Lighthouse and manager by their Python names (tutti_torch.ft.coordination); and torchft's own tests with its compiled
parts replaced by these, one by one and together: all that pass with its own. Those are skipped where torchft is not
installed."""

import gc
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torchft_suite as suite

from tutti_torch.ft.coordination import (
    LighthouseClient,
    LighthouseServer,
    ManagerClient,
    ManagerServer,
    Quorum,
    QuorumMember,
    QuorumResult,
)

SECOND = timedelta(seconds=1)


def manager(lighthouse: str, name: str = "group", world_size: int = 1) -> ManagerServer:
    return ManagerServer(replica_id=name, lighthouse_addr=lighthouse, hostname="localhost", bind="[::]:0",
                         store_addr=f"store-of-{name}", world_size=world_size, heartbeat_interval=SECOND / 50,
                         connect_timeout=10 * SECOND, quorum_retries=0)


class Natives(unittest.TestCase):
    def setUp(self) -> None:
        self.lighthouse = LighthouseServer(bind="localhost:0", min_replicas=1, join_timeout_ms=2000)

    def tearDown(self) -> None:
        self.lighthouse.shutdown()
        gc.collect()

    def test_lighthouse_client(self) -> None:
        client = LighthouseClient(addr=self.lighthouse.address(), connect_timeout=10 * SECOND)
        client.heartbeat("alone")
        quorum = client.quorum(replica_id="alone", timeout=10 * SECOND, address="a", store_address="s", step=3,
                               world_size=2, data={"x": [1, None]})
        self.assertIsInstance(quorum, Quorum)
        (member,) = quorum.participants
        self.assertIsInstance(member, QuorumMember)
        self.assertEqual((member.replica_id, member.address, member.store_address, member.step, member.world_size,
                          member.shrink_only, member.data), ("alone", "a", "s", 3, 2, False, {"x": [1, None]}))
        self.assertEqual(quorum.quorum_id, 1)
        self.assertLess(abs(quorum.created.seconds - time.time()), 100)
        (member,) = client.quorum("alone", 10 * SECOND).participants
        self.assertIsNone(member.data)

    def test_two_groups_of_two(self) -> None:
        lighthouse = LighthouseServer(bind="localhost:0", min_replicas=2)
        groups = [manager(lighthouse.address(), name, world_size=2) for name in ("a", "b")]

        def rank(i: int) -> QuorumResult:
            client = ManagerClient(groups[i // 2].address(), connect_timeout=10 * SECOND)
            result = client._quorum(group_rank=i % 2, step=7 if i < 2 else 5, checkpoint_metadata=f"state of {i}",
                                    shrink_only=False, timeout=10 * SECOND, commit_failures=i, init_sync=True,
                                    reconfigure_handle=f"handle of {i}")
            self.assertEqual(client.should_commit(i % 2, 7, i != 3, 10 * SECOND), i < 2)
            self.assertTrue(client.progress(i % 2, 7, 40))
            if result.heal:
                source = ManagerClient(result.recover_src_manager_address, connect_timeout=10 * SECOND)
                self.assertEqual(source._checkpoint_metadata(i % 2, 10 * SECOND), f"state of {i - 2}")
            return result

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(rank, range(4)))
        for i, result in enumerate(results):
            self.assertEqual(
                (result.quorum_id, result.replica_rank, result.replica_world_size, result.max_step,
                 result.max_world_size, result.max_replica_rank, result.heal, result.recover_src_replica_rank,
                 result.recover_dst_replica_ranks, result.store_address, result.replica_ids,
                 result.reconfigure_handles),
                (1, i // 2, 2, 7, 1, None if i >= 2 else 0, i >= 2, 0 if i >= 2 else None, [] if i >= 2 else [1],
                 "store-of-a", ["a", "b"], [f"handle of {i % 2}", f"handle of {2 + i % 2}"]))
            self.assertGreaterEqual(result.commit_failures, 2)
        for server in (*groups, lighthouse):
            server.shutdown()

    def test_timeouts_and_errors(self) -> None:
        server = manager(self.lighthouse.address(), world_size=2)
        client = ManagerClient(server.address(), connect_timeout=10 * SECOND)
        ask = dict(group_rank=0, step=0, checkpoint_metadata="", shrink_only=False, commit_failures=0)
        with self.assertRaisesRegex(TimeoutError, 'status: Cancelled, message: "Timeout expired"'):
            client._quorum(timeout=SECOND / 100, **ask)
        with self.assertRaisesRegex(TimeoutError, "should_commit of rank 0, step 4 timed out after 10 ms"):
            client.should_commit(0, 4, True, SECOND / 100)
        with self.assertRaisesRegex(RuntimeError, "rank not found"):
            client._checkpoint_metadata(1, SECOND)
        with self.assertRaisesRegex(RuntimeError, "group_rank is 2, but group has 2 ranks"):
            client._quorum(timeout=SECOND, **{**ask, "group_rank": 2})
        with self.assertRaisesRegex(RuntimeError, "Connection refused"):
            ManagerClient("http://localhost:1", connect_timeout=SECOND / 10)
        with self.assertRaisesRegex(RuntimeError, "no address"):
            LighthouseClient("nowhere", connect_timeout=SECOND)
        with self.assertRaisesRegex(RuntimeError, "min_replicas"):
            LighthouseServer(bind="localhost:0", min_replicas=0)
        with self.assertRaisesRegex(RuntimeError, "so nobody may kill it"):
            client.kill("a test")
        server.shutdown()
        with self.assertRaisesRegex(RuntimeError, "Unavailable"):
            client.should_commit(0, 4, True, 10 * SECOND)

    def test_other_threads_run_meanwhile(self) -> None:
        server = manager(self.lighthouse.address(), world_size=2)
        client = ManagerClient(server.address(), connect_timeout=10 * SECOND)
        votes = []
        thread = threading.Thread(target=lambda: votes.append(client.should_commit(0, 1, True, 10 * SECOND)))
        thread.start()
        votes.append(client.should_commit(1, 1, True, 10 * SECOND))
        thread.join()
        self.assertEqual(votes, [True, True])
        server.shutdown()

    def test_results_can_be_made(self) -> None:
        result = QuorumResult()
        result.heal, result.replica_ids, result.max_replica_rank = True, ["a"], 4
        self.assertEqual((result.heal, result.replica_ids, result.max_replica_rank, result.recover_src_replica_rank),
                         (True, ["a"], 4, None))


@unittest.skipIf(suite.missing(), suite.missing())
class Torchft(unittest.TestCase):
    def test_all_that_passes_with_its_own_parts(self) -> None:
        choices = [(), *((part,) for part in suite.PARTS), tuple(suite.PARTS)]
        own, *others = suite.run(choices, suite.FILES)
        self.assertTrue(any(outcome.result == "passed" for outcome in own.values()))
        for parts, ours in zip(choices[1:], others):
            with self.subTest(parts):
                self.assertEqual(suite.regressions(own, ours), [])


if __name__ == "__main__":
    unittest.main()
