#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torchft's lighthouse with the options of tutti's, for `tutti chaos --lighthouse-program`; with the defaults of
torchft_lighthouse: 5 s without a heartbeat, 60 s for those that do not ask."""

import argparse
import time

from torchft.coordination import LighthouseServer

parser = argparse.ArgumentParser()
parser.add_argument("--bind", required=True)
parser.add_argument("--min-replicas", type=int, required=True)
options = parser.parse_args()
port = options.bind.rsplit(":", 1)[1]
server = LighthouseServer(
    bind=f"[::]:{port}", min_replicas=options.min_replicas, join_timeout_ms=60000, heartbeat_timeout_ms=5000
)
while True:
    time.sleep(3600)
