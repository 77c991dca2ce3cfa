#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Everything that a machine with several GPUs is measured for, in one go of at most eight minutes: builds, runs the
# contract suite on 1, 2, 3 and 4 GPUs, compares with the other libraries on GPUs, in training, and on CPUs, finds the
# constants for the choice of methods, and writes tables, a JSON of everything, and the rest (plots, logs) as one archive.
# Each part has a share of the time; what it found is written when it ends.
#
#     bench/gpu_scale.sh                          all parts, all GPUs, 480 seconds
#     bench/gpu_scale.sh --seconds 300 --parts build,peers --gpus 2 --out DIR
#     bench/gpu_scale.sh --report --out DIR       only tells what an earlier run has left there
#
# It needs a C compiler, CMake and Python, of which TUTTI_PYTHON can name one that has PyTorch; what else is missing (CUDA
# toolkit, GPUs, PyTorch, Open MPI) is told. The exit status is 0 if all parts ran whole and all results were right.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
python=${TUTTI_PYTHON:-$(command -v python3 || true)}
[ -n "$python" ] || { echo "gpu_scale: there is no python3; TUTTI_PYTHON can name one" >&2; exit 2; }
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 exec "$python" -m peers.scale.command "$@"
