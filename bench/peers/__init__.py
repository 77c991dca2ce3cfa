# SPDX-License-Identifier: BSD-3-Clause
"""The parts of bench/torch_peers.py: who is measured (backends), what (cells, calls, training), and how it is told
(launch, report). Everything runs inside the ranks of one job, in which the groups of all peers are alive at once."""
