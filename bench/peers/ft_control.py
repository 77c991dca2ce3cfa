# SPDX-License-Identifier: BSD-3-Clause
"""One group of the measurement of the control plane: ft_control.py PARTS LIGHTHOUSE NUMBER. Prints the milliseconds
that a quorum and a commit take, in the median."""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from datetime import timedelta

STEPS, WARM = 300, 50
WAIT = timedelta(seconds=30)


def main() -> None:
    parts, lighthouse, number = sys.argv[1:]
    ft = importlib.import_module("tutti_torch.ft.coordination" if parts == "tutti" else "torchft.coordination")
    server = ft.ManagerServer(
        replica_id=f"control_{number}", lighthouse_addr=lighthouse, hostname="localhost", bind="[::]:0",
        store_addr="localhost:1", world_size=1, heartbeat_interval=timedelta(milliseconds=100), connect_timeout=WAIT,
        quorum_retries=0,
    )
    client = ft.ManagerClient(server.address(), connect_timeout=WAIT)
    times = []
    for step in range(STEPS):
        begin = time.perf_counter()
        client._quorum(group_rank=0, step=step, checkpoint_metadata="", shrink_only=False, init_sync=True,
                       commit_failures=0, timeout=WAIT, reconfigure_handle="")
        client.should_commit(0, step, True, timeout=WAIT)
        times.append(time.perf_counter() - begin)
    print(1e3 * statistics.median(times[WARM:]))
    time.sleep(0.2)  # the other's last answer
    server.shutdown()


if __name__ == "__main__":
    main()
