# SPDX-License-Identifier: BSD-3-Clause
"""What `import torch` calls in every process of an environment that has tutti_torch (entry point group torch.backends):
it must cost nothing and never fail unless it was asked for. So it only makes the backend's name known; the package
itself is loaded when somebody asks for a group of that name, or at once where one of the two variables is set. A module
of its own, so that nothing of the package is loaded before."""

import functools
import importlib
import os
import sys

VARIABLES = ("TUTTI_TORCH_DEFAULT", "TUTTI_TORCH_REPLACE")
NAME, PACKAGE = "tutti", "tutti_torch"  # by name: nothing here depends on the package
# Types that a stock PyTorch knows. That of an accelerator outside it is added once it has its name.
DEVICES = ("cpu", "cuda", "xpu", "hpu", "mtia")


def create(group, options):
    """What torch.distributed calls on each member of a new group (its extended API)."""
    registration = importlib.import_module(f"{PACKAGE}.registration")

    return registration.create(group, options)


def loading(original):
    """What stands before PyTorch's function that creates groups, and loads the package for the first one that asks for
    tutti: what the package puts there has to see that group too."""

    @functools.wraps(original)
    def create_group(group_size, group_rank, global_ranks_in_group, backend, *args, **options):
        chosen = original
        if NAME in str(backend).lower() and "tutti_torch" not in sys.modules:
            importlib.import_module(PACKAGE)

            chosen = sys.modules["torch.distributed.distributed_c10d"]._new_process_group_helper  # and back to here
        return chosen(group_size, group_rank, global_ranks_in_group, backend, *args, **options)

    return create_group


def announce() -> None:
    """Makes the name known. PyTorch makes a new name the default of devices that have none (2.6: of most); that is for
    the user to say."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or NAME in c10d.Backend.backend_list:
        return
    before = dict(c10d.Backend.default_device_backend_map)
    c10d.Backend.register_backend(NAME, create, extended_api=True, devices=list(DEVICES))
    c10d.Backend.default_device_backend_map.clear()
    c10d.Backend.default_device_backend_map.update(before)
    c10d._new_process_group_helper = loading(c10d._new_process_group_helper)


def autoload() -> None:
    """Loads tutti_torch, which does what the variables say, where one of them is set; else only announces it. A value
    that means nothing ends the program."""
    named = [name for name in VARIABLES if os.environ.get(name)]
    try:
        if named:
            importlib.import_module(PACKAGE)
        else:
            announce()
    except ValueError as error:  # a value that means nothing: PyTorch would put its own words behind the sentence
        raise SystemExit(str(error))
    except Exception as error:
        if not named:
            return  # a program that asks for the backend is told that there is none
        raise RuntimeError(f"{' and '.join(named)} asks for tutti_torch, which can not be loaded: {error}") from error
