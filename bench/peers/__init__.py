# SPDX-License-Identifier: BSD-3-Clause
"""The parts of bench/torch_peers.py and bench/cpu_peers.py. The first: who is measured (backends), what (cells, calls,
training), in ranks that hold the groups of all backends at once (launch). The second: the harness in C (collectives.c
and the files beside it), how its programs are made (programs) and driven (ranks, worlds), and what comes of it
(results, goals, plots, pages). How results are told is shared (report)."""
