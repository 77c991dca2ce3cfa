# SPDX-License-Identifier: BSD-3-Clause
"""The parts of bench/gpu_scale.sh, which measures all that a machine with several GPUs is wanted for. Begin with
command: it gives each part (parts) its time. A part starts programs (programs) of a tree that was built for it
(build)."""
