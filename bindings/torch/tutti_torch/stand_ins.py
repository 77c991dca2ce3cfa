# SPDX-License-Identifier: BSD-3-Clause
"""What programs find under the names of backends that tutti replaces (TUTTI_TORCH_REPLACE): PyTorch's classes
ProcessGroupNCCL and ProcessGroupXCCL with their options, also in builds that lack them, and the calls that are these
classes' alone. docs/torch.md has the table of these calls."""

import json
import pickle
import sys
import zlib
from datetime import timedelta
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from . import _C

NCCL_VERSION = (2, 30, 7)  # the interface's; the library is not there
TIMEOUT = timedelta(minutes=10)  # PyTorch's for groups of these backends
UNSET = -(2**31)  # NCCL's own mark of a field that nobody set
MOST_BLOCKS = 128

Options = _C.Backend.Options


def carried(given, timeout: timedelta, name: str = "tutti") -> Options:
    """Our own options with what a program's say, whichever backend it made them for: the streams' priority, the most
    blocks of a kernel, files of algorithms. The rest means nothing here. The group's timeout is its own, as PyTorch
    has it."""
    own = Options(timeout, name)
    own.is_high_priority_stream = bool(getattr(given, "is_high_priority_stream", False))
    library = dict(given.library) if isinstance(given, Options) else {}
    blocks = getattr(getattr(given, "config", None), "max_ctas", UNSET)
    if isinstance(blocks, int) and blocks > 0:
        library["gpu_blocks"] = str(min(blocks, MOST_BLOCKS))
    own.library = library
    return own


class NCCLConfig:
    """The fields of PyTorch's NCCLConfig. max_ctas is the most blocks that a kernel has; the others are kept, and
    mean nothing."""

    __slots__ = ("blocking", "cga_cluster_size", "min_ctas", "max_ctas", "split_share", "net_name", "traffic_class",
                 "comm_name", "collnet_enable", "cta_policy", "shrink_share", "nvls_ctas", "n_channels_per_net_peer",
                 "nvlink_centric_sched", "graph_usage_mode", "num_rma_ctx", "max_p2p_peers")  # fmt: skip

    def __init__(self) -> None:
        for field in self.__slots__:
            setattr(self, field, None if field.endswith("_name") else UNSET)

    def unsafe_get_ptr(self) -> int:
        raise RuntimeError("tutti stands in for nccl: NCCLConfig.unsafe_get_ptr: there is no structure of NCCL's")


def options_of(thing) -> Options:
    return thing if isinstance(thing, Options) else thing.options


class StandIn(type(_C.Backend)):
    """The kind of these classes. What PyTorch hands out is an object of tutti's own class; it is an instance of the
    one that the program named."""

    def __instancecheck__(cls, thing) -> bool:
        return isinstance(thing, cls.__base__) and options_of(thing).backend == cls.stands_for


def class_for(name: str) -> type:
    """ProcessGroupNCCL or ProcessGroupXCCL."""

    class OwnOptions(Options, metaclass=StandIn):
        stands_for = name

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__(TIMEOUT, name)
            self.is_high_priority_stream = is_high_priority_stream
            self.config = NCCLConfig()
            self.split_from, self.split_color = None, 0  # groups are split by their ranks

        def __copy__(self):
            other = OwnOptions(self.is_high_priority_stream)
            other._timeout, other.library = self._timeout, self.library
            for field in NCCLConfig.__slots__:
                setattr(other.config, field, getattr(self.config, field))
            return other

        def __deepcopy__(self, _):
            return self.__copy__()

    class ProcessGroup(_C.Backend, metaclass=StandIn):
        stands_for = name
        Options, NCCLConfig = OwnOptions, NCCLConfig

        def __init__(self, store, rank: int, size: int, options=None, timeout: Optional[timedelta] = None) -> None:
            if isinstance(options, timedelta):
                options, timeout = None, options
            timeout = timeout or getattr(options, "_timeout", TIMEOUT)
            super().__init__(store, rank, size, carried(options, timeout, name))

    ProcessGroup.__name__ = ProcessGroup.__qualname__ = f"ProcessGroup{name.upper()}"
    ProcessGroup.__module__ = c10d.__name__
    OwnOptions.__name__, OwnOptions.__qualname__ = "Options", f"{ProcessGroup.__qualname__}.Options"
    OwnOptions.__module__ = c10d.__name__
    return ProcessGroup


# ---- calls of ProcessGroupNCCL alone ----


def nothing(*_, **__) -> None:
    """What NCCL needs to be told, and tutti does not."""


def refused(call: str, why: str):
    def run(*_, **__):
        raise RuntimeError(f"tutti stands in for nccl: {call}: {why}")

    return run


def dump_trace(includeCollectives: bool = True, includeStackTraces: bool = True, onlyActive: bool = False) -> bytes:
    return _C.flight_recorder(onlyActive, includeCollectives)


def dump_trace_json(includeCollectives: bool = True, onlyActive: bool = False) -> bytes:
    return json.dumps(pickle.loads(_C.flight_recorder(onlyActive, includeCollectives))).encode()


METHODS = {
    "_group_start": nothing,  # the end of one group waits for no other's
    "_group_end": nothing,
    "_is_initialized": lambda self: True,  # it met when it was made
    "comm_split_count": lambda self: 0,  # groups of parts are made anew
    "uid": property(lambda self: zlib.crc32(getattr(self.options, "group_name", "").encode())),
    "_shutdown": lambda self: self.shutdown(),
    "_comm_ptr": refused("_comm_ptr", "there is no communicator of NCCL's (tutti run --as-nccl has them)"),
    "_add_ephemeral_timeout": refused("_add_ephemeral_timeout", "give the calls that need it a timeout of their own"),
    "_verify_work_timeout": refused("_verify_work_timeout", "a call's deadline can not be asked for"),
    "_start_time_estimate": refused("_start_time_estimate", "`tutti sched predict` tells a call's time beforehand"),
    "_end_time_estimate": refused("_end_time_estimate", "`tutti sched predict` tells a call's time beforehand"),
    "deregister_mem_pool": nothing,  # windows end with their segments
    "get_build_nccl_version": staticmethod(lambda: NCCL_VERSION),
    "get_runtime_nccl_version": staticmethod(lambda: NCCL_VERSION),
}  # fmt: skip
POLICIES = ("DEFAULT", "EFFICIENCY", "ZERO")  # config.cta_policy, by their numbers
FUNCTIONS = {"_dump_nccl_trace": dump_trace, "_dump_nccl_trace_json": dump_trace_json}


# ---- putting them in place ----


def show(name: str, thing) -> None:
    """Where PyTorch's own are: in torch.distributed, in its module and in the compiled one."""
    for module in (dist, c10d, sys.modules["torch._C._distributed_c10d"]):
        setattr(module, name, thing)
    if name not in c10d.__all__:
        c10d.__all__.append(name)


def put(names: list) -> None:
    """For backends of devices; gloo's class is left alone, its groups are made otherwise."""
    for name in names:
        if name == "gloo":
            continue
        show(f"ProcessGroup{name.upper()}", class_for(name))
        setattr(c10d, f"_{name.upper()}_AVAILABLE", True)
    if "nccl" not in names:
        return
    for name, method in METHODS.items():
        setattr(_C.Backend, name, method)
    for number, policy in enumerate(POLICIES):
        setattr(dist.ProcessGroupNCCL, f"NCCL_CTA_POLICY_{policy}", number)
    for name, function in FUNCTIONS.items():
        setattr(sys.modules["torch._C._distributed_c10d"], name, function)
    c10d.default_pg_nccl_timeout = c10d.default_pg_nccl_timeout or TIMEOUT
    if not hasattr(torch._C, "_nccl_version"):
        torch.cuda.nccl.version = lambda: NCCL_VERSION
