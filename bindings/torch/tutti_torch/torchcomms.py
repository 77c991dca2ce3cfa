# SPDX-License-Identifier: BSD-3-Clause
"""torchcomms loads this by its entry point, and then has the backend "tutti": torchcomms.new_comm("tutti", ...). The
plug-in is compiled when torchcomms is there as tutti_torch is built, for one version of torchcomms' classes."""

import ctypes
import os
from importlib import metadata

import torch

from . import _build, _load

KNOWN, ABI = "0.3", "1.3"  # the plug-in was written for their classes (csrc/torchcomms/torchcomms_abi.hpp)
LIBRARY = os.path.join(_load.FOLDER, "lib", "libtutti_torchcomms.so")
VARIABLE = "TORCHCOMMS_BACKEND_LIB_PATH_TUTTI"  # where torchcomms looks for the library


def check(version: str) -> None:
    """ImportError, saying what to do, unless the plug-in is there and fits this torchcomms."""
    if _load.minor(version) != KNOWN:
        raise ImportError(f"tutti's plug-in is for torchcomms {KNOWN}, and this is torchcomms {version}: install "
                          f"torchcomms {KNOWN}, or use `import tutti_torch.comms as torchcomms`: the same API")
    if not _build.TORCHCOMMS:
        raise ImportError("tutti_torch was built without torchcomms, and so has no plug-in for it: "
                          f"{_load.REBUILD}, now that torchcomms is there")
    if _load.minor(_build.TORCHCOMMS) != _load.minor(version):
        raise ImportError(f"tutti_torch was built for torchcomms {_build.TORCHCOMMS}, and this is torchcomms "
                          f"{version}: {_load.REBUILD}")


def register() -> None:
    """torchcomms compares its ABI with the plug-in's when it makes a communicator: one without members is made before
    names are registered that it would not compare. Versions alone do not tell: two 0.3.0 differ."""
    version = metadata.version("torchcomms")
    check(version)
    import torchcomms  # its library is where the plug-in's names are found

    os.environ.setdefault(VARIABLE, LIBRARY)
    try:
        torchcomms.new_comm("tutti", torch.device("cpu"), "a look at the ABI", enable_reconfigure=True).finalize()
    except RuntimeError as error:
        raise ImportError(f"tutti's plug-in does not fit this torchcomms {version}, it is for the one whose ABI is "
                          f"{ABI}: {str(error).splitlines()[0]}") from None
    library = ctypes.CDLL(LIBRARY)
    for name in sorted({point.name for point in metadata.entry_points(group="torchcomms.backends")}):
        if name.split(":")[0] == "tutti":
            library.tutti_torchcomms_register(name.encode())


register()
