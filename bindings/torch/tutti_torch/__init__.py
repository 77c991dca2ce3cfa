# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's backend "tutti": importing this package makes `torch.distributed.init_process_group("tutti")` work. It
starts no thread and opens no device, so that a program may fork afterwards."""

import torch

from ._load import build_info, check

check(torch.__version__)

from . import _C  # noqa: E402
from . import algorithms, device_memory, dist2, gradients, patches, registration, stand_ins, variables  # noqa: E402
from .algorithms import algorithm, options  # noqa: E402
from .gradients import average_gradients  # noqa: E402

__version__ = build_info()["version"]
__all__ = ["__version__", "algorithm", "average_gradients", "build_info", "dump_flight_recorder", "options",
           "record_job"]

dump_flight_recorder = _C.flight_recorder


def __getattr__(name):
    """`record_job`, whose module is a program, too: it is imported when it is asked for."""
    if name != "record_job":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .job import record_job
    return record_job


algorithms.find_programs()
registration.register()
stand_ins.put(variables.replaced_backends())
patches.put()
gradients.put()
device_memory.enable()
dist2.register([registration.NAME, *variables.replaced_backends()])
