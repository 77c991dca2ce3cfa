# SPDX-License-Identifier: BSD-3-Clause
"""The parts of bench/gpu_peers.py: it has the ranks run (runs), each of which measures (rank, with the library as
tutti.py calls it), and tells what comes of it (goals, plots)."""
