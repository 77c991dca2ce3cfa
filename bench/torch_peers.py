#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""tutti against the other backends that PyTorch has for CPUs: gloo, and MPI where mpi4py is installed. "comms" is tutti
by torchcomms' API (tutti_torch.comms), "torchcomms" is gloo by torchcomms, where that is installed. All run in the
same processes and in turn, so that their ratios hold on a machine that has other things to do. Every result is checked
before it is timed. Measured are the collectives from 8 bytes to 256 MiB, what the binding adds to a call, how much of a
long call is hidden behind computing, and steps of models under DDP and FSDP2, tensor parallel and as a pipeline.

    bench/torch_peers.py --quick                       a minute
    bench/torch_peers.py --json FILE                   a few minutes, 2 and 4 ranks
    bench/torch_peers.py --ops all_reduce --ranks 2    a part
    bench/torch_peers.py --device cuda --ranks 2       training alone, one GPU a rank, against nccl
    bench/torch_peers.py --device cuda --ranks 2 --steps ddp --models medium --profile DIR
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import sys

for variable in ("TUTTI_TORCH_REPLACE", "TUTTI_TORCH_DEFAULT"):  # here every name means itself
    os.environ.pop(variable, None)
os.environ.setdefault("OMP_NUM_THREADS", "1")

from peers import launch, report
from peers.arguments import counts, names, sizes

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier", "send_recv")
SIZES = [8, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20]
SIZES += [256 << 20]
QUICK = [8, 512, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20]
PARTS = ("cells", "overhead", "overlap", "training")
STEPS = ("ddp", "fsdp2", "tp", "pipeline")
MODELS = ("small", "medium", "large")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, about a minute")
    parser.add_argument("--seconds", type=float, help="about how long to measure (default 300, quick: 60)")
    parser.add_argument("--ranks", type=counts, default=[2, 4])
    parser.add_argument("--ops", type=names(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--sizes", type=sizes, help="8,64K,1M")
    parser.add_argument("--parts", type=names(PARTS), default=list(PARTS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: no cells, no overlap")
    parser.add_argument("--steps", type=names(STEPS), default=list(STEPS), help="of training: ddp,fsdp2,tp,pipeline")
    parser.add_argument("--models", type=names(MODELS), default=list(MODELS), help="small,medium,large")
    parser.add_argument("--profile", metavar="DIR", help="training on GPUs: where a step spends its time, and traces")
    parser.add_argument("--peers", type=lambda t: t.split(","), help="the first is compared with the others")
    parser.add_argument("--json", metavar="FILE", help="write all that was measured")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there too")
    parser.add_argument("--inside", metavar="FOLDER", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.seconds = chosen.seconds or (60.0 if chosen.quick else 300.0)
    chosen.sizes = chosen.sizes or (QUICK if chosen.quick else SIZES)
    if chosen.device == "cuda":
        chosen.parts = [part for part in chosen.parts if part in ("overhead", "training")]
    if not chosen.peers:
        chosen.peers = ["tutti", "gloo" if chosen.device == "cpu" else "nccl"]
        if chosen.device == "cpu":
            chosen.peers += ["comms", *(["torchcomms"] if importlib.util.find_spec("torchcomms") else [])]
        if chosen.device == "cpu" and launch.mpi_is_installed() and shutil.which("mpiexec"):
            chosen.peers.append("mpi")
    return chosen


def main() -> None:
    chosen = options()
    if not importlib.util.find_spec("torch"):
        sys.exit(f"torch_peers: there is no PyTorch in {sys.executable}")
    import torch
    from peers import backends, torch_worlds

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the ranks are ended, too
    for name in chosen.peers:
        backends.load_backend(name)

    def body(rank: int, n: int, store: str) -> dict:
        return torch_worlds.measure_world(chosen, rank, n, store)

    if chosen.inside:
        launch.run_rank(body, *launch.rank_of_mpi(), chosen.inside)
        return
    result = {
        "torch": torch.__version__,
        "cpu": report.cpu_name(),
        "n_cpus": len(os.sched_getaffinity(0)),
        "peers": chosen.peers,
        "worlds": {},
    }
    under_mpi = sys.argv if "mpi" in chosen.peers else None
    for n in chosen.ranks:
        result["worlds"][str(n)] = launch.launch(body, n, 120 + 6 * chosen.seconds, under_mpi)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    result["summary"] = report.summary(result["worlds"], chosen.peers[0], chosen.peers[1:])
    text = report.markdown(result)
    print(text, end="")
    for path, content in ((chosen.json, json.dumps(result, indent=1)), (chosen.markdown, text)):
        if path:
            with open(path, "w") as file:
                file.write(content)


if __name__ == "__main__":
    main()
