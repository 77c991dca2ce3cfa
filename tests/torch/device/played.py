# SPDX-License-Identifier: BSD-3-Clause
"""usage: played.py cuda|xpu PROGRAM [ARGUMENT...]
Runs a program of Python where a stand-in plays the device (tutticuda.py, tuttixpu.py), of which it knows nothing."""

import ctypes
import os
import runpy
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

ctypes.CDLL(os.environ[f"TUTTI_TEST_{sys.argv[1].upper()}"])  # before torch, which asks once whether CUDA is there
__import__(f"tutti{sys.argv[1]}")
sys.argv = sys.argv[2:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
