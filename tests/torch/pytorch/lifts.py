# SPDX-License-Identifier: BSD-3-Clause
"""What of PyTorch's distributed_test is decided by a list of backend names, and the answer for a backend that the
lists do not know. The suite skips a test when the backend's name is missing from a list; such a skip is lifted here,
by its reason, where the name stands for an ability. A skip for want of a device, of ranks, or by an upstream issue is
not in the table and stays."""

import functools
import os
import re
import sys

# "reason: test" of the suite -> the ability that the name stood for.
LIFTED = (
    (r"Only gloo backend supports timeouts: ", "barrier with a time limit"),
    (r"GLOO Batch Send Recv CPU: ", "batch_isend_irecv of CPU tensors"),
    (r"NCCL Batch Send Recv Only: test_batch_isend_irecv_op_list_err$", "checks of batch_isend_irecv's arguments"),
    (r"Only MPI supports (CPU )?all_to_all(_single)?: ", "all_to_all of CPU tensors"),
    (r"Only Gloo backend supports sparse all reduce: ", "all_reduce of sparse tensors"),
    (r"get_future is only supported on mpi, nccl and gloo: ", "Work.get_future"),
    (r"Only Nccl & Gloo backend support DistributedDataParallel: ", "DistributedDataParallel"),
    (r"Test requires backend \w+ to be one of \{'gloo'\}: ", "what gloo alone had when the list was written"),
    # The device decides these: the suite asks for it in a check of its own, except in the test that is left out.
    (r"Only Nccl supports CUDA (all_to_all_single|all gather|all_gather_into_tensor|gather|reduce|"
     r"reduce_scatter_tensor): (?!test_all_to_all_group_cuda$)", "collectives of device tensors"),
    (r"Only Nccl supports (all_gather_v|reduce_scatter_v): ", "collectives of device tensors"),
    (r"Only Gloo and (NCCL backends will have CUDA allReduce tested|Nccl backends support CUDA allReduce): ",
     "collectives of device tensors"),
    (r"Coalescing manager currently tests with NCCL only; internal test flaky: ", "collectives of device tensors"),
)

lifted: dict = {}  # test -> the ability its skip was lifted for; filled as the suite is imported

# Sets of the suite in which a backend is entered by what it can do.
FEATURES = ("gpu", "cuda", "ddp", "subgroup", "plugin")
PROFILED = ("PROFILING_SUPPORTED_BACKENDS", "SEND_RECV_PROFILING_SUPPORTED_BACKENDS")


def ability(reason: str, test: str) -> str:
    """The ability behind a skip for its name, or nothing when the skip has another cause."""
    return next((what for pattern, what in LIFTED if re.match(pattern, f"{reason}: {test}")), "")


class Name(str):
    """A backend's name that `BACKEND == "gloo"` in the body of a test takes for gloo's: both serve CPU tensors."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def lift_names() -> None:
    """Makes the suite's skipping decorators ask for the ability; before the suite is imported."""
    from torch.testing._internal import common_utils

    skip = common_utils.skip_but_pass_in_sandcastle

    def skip_unless_able(reason):
        def decorate(test):
            able = ability(reason, test.__name__)
            if not able:
                return skip(reason)(test)
            lifted[test.__name__] = able
            return test

        return decorate

    def skip_unless_able_if(condition, reason):
        return skip_unless_able(reason) if condition else lambda test: test

    common_utils.skip_but_pass_in_sandcastle = skip_unless_able
    common_utils.skip_but_pass_in_sandcastle_if = skip_unless_able_if


def enter_features(backend: str) -> None:
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in FEATURES:
        DistTestCases.backend_feature[feature].add(backend)


def lift_sizes() -> None:
    """The suite asks for eight ranks where its groups are of ranks 1 and 2, to spare its authors' machines."""
    from torch.testing._internal import common_distributed

    def skip_if_small_worldsize(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            if int(os.environ["WORLD_SIZE"]) < 3:
                sys.exit(common_distributed.TEST_SKIPS["small_worldsize"].exit_code)
            return test(*args, **kwargs)

        return run

    common_distributed.skip_if_small_worldsize = skip_if_small_worldsize


def enter_names(suite, backend: str) -> None:
    """What the suite looks up by name while it runs; after it was imported."""
    for known in PROFILED:
        getattr(suite, known).append(backend)
    suite.BACKEND = Name(backend)
