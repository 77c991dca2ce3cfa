# SPDX-License-Identifier: BSD-3-Clause
"""usage: replaced_program.py BACKEND
A program that knows of gloo and NCCL alone, with what programs of both ask for; replaced_test.py runs it where tutti
stands in for them."""

import ast
import copy
import os
import pickle
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroupNCCL
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import init_device_mesh

KIND = "cuda" if torch.cuda.is_available() else "cpu"


def device() -> torch.device:
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if KIND == "cuda" else torch.device("cpu")


def check_sum(group=None) -> None:
    one = torch.ones(5, device=device())
    dist.all_reduce(one, group=group)
    assert one.tolist() == [dist.get_world_size(group)] * 5, one


def made_options() -> ProcessGroupNCCL.Options:
    options = ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.max_ctas, options.config.min_ctas, options.config.net_name = 4, 2, "Socket"
    try:
        options.config.max_cats = 4
    except AttributeError:
        pass
    else:
        raise AssertionError("a field that NCCL does not have was taken")
    again = copy.deepcopy(options)
    assert isinstance(again, ProcessGroupNCCL.Options) and again.backend == "nccl"
    assert (again.is_high_priority_stream, again.config.max_ctas, again.config.min_ctas) == (True, 4, 2)
    return options


def check_carried(group, timeout: timedelta) -> None:
    backend = group._get_backend(device())
    own = backend.options
    assert own.is_high_priority_stream and own.library == {"gpu_blocks": "4"}, own.library
    assert own._timeout == timeout, own._timeout
    is_nccl = group.name() == "nccl"
    assert isinstance(backend, ProcessGroupNCCL) == isinstance(own, ProcessGroupNCCL.Options) == is_nccl


def groups(world, options) -> None:
    n = dist.get_world_size()
    of_nccl = dist.new_group(backend="nccl", pg_options=options, timeout=timedelta(seconds=31))
    assert dist.get_backend(of_nccl) == of_nccl.name() == "nccl"
    check_carried(of_nccl, timedelta(seconds=31))
    check_sum(of_nccl)
    check_sum(dist.new_group(backend="cpu:gloo,cuda:nccl"))
    on_cpu = dist.new_group(backend="gloo")
    assert dist.get_backend(on_cpu) == on_cpu.name() == "gloo"
    assert not isinstance(on_cpu._get_backend(torch.device("cpu")), ProcessGroupNCCL)
    objects = [dist.get_rank()]
    dist.broadcast_object_list(objects, src=n - 1, group=on_cpu)
    assert objects == [n - 1]
    dist.monitored_barrier(on_cpu, timeout=timedelta(seconds=30))
    dist.barrier(group=on_cpu)
    mesh = init_device_mesh(KIND, (1, n), mesh_dim_names=("one", "all"))
    check_sum(mesh.get_group("all"))
    if KIND == "cpu" or world.bound_device_id is not None:
        parts = dist.split_group(world, [[rank] for rank in range(n)], pg_options=options)
        check_sum(parts)
        assert dist.get_backend(parts) == dist.get_backend(), dist.get_backend(parts)
        check_carried(parts, parts._get_backend(device()).options._timeout)


def check_names() -> None:
    """What PyTorch's own stub of the class has, is there; and what the frameworks take of it beside."""
    stub = ast.parse((Path(torch.__file__).parent / "_C" / "_distributed_c10d.pyi").read_text())
    body = next(node.body for node in stub.body if getattr(node, "name", "") == "ProcessGroupNCCL")
    names = {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    missing = {name for name in names if not hasattr(ProcessGroupNCCL, name)}
    assert len(names) > 10 and not missing, missing
    assert ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO == 2


def check_refused(call: str, *arguments) -> None:
    backend = dist.group.WORLD._get_backend(device())
    try:
        getattr(backend, call)(*arguments)
    except RuntimeError as error:
        assert str(error).startswith(f"tutti stands in for nccl: {call}: "), error
    else:
        raise AssertionError(f"{call} was taken")


def calls_of_nccl_alone(world) -> None:
    backend = world._get_backend(device())
    check_names()
    backend._group_start()
    backend._group_end()
    assert backend._is_initialized() and isinstance(backend.uid, int)
    assert c10d._get_process_group_uid(world) == backend.uid
    assert torch.cuda.nccl.version() >= (2, 10) and ProcessGroupNCCL.get_runtime_nccl_version() >= (2, 10, 0)
    check_refused("_verify_work_timeout", None, timedelta(seconds=1))
    check_refused("_add_ephemeral_timeout", timedelta(seconds=1))
    check_refused("_start_time_estimate")
    check_refused("_end_time_estimate")
    check_refused("_comm_ptr")
    assert backend.comm_split_count() == 0
    backend.perform_nocolor_split(device())
    backend.eager_connect_single_device(device())
    assert backend.get_error() == backend.get_error().SUCCESS
    c10d._set_pg_timeout(timedelta(seconds=41))
    assert backend.options._timeout == timedelta(seconds=41)
    trace = pickle.loads(sys.modules["torch._C._distributed_c10d"]._dump_nccl_trace())
    assert trace["entries"], trace


def made_by_class(world) -> None:
    """As torchft does it."""
    store = dist.PrefixStore("by class", c10d._get_default_store())
    made = ProcessGroupNCCL(store, dist.get_rank(), dist.get_world_size(), timedelta(seconds=20))
    assert made.options._timeout == timedelta(seconds=20) and isinstance(made, ProcessGroupNCCL)
    one = torch.ones(2, device=device())
    made.allreduce([one]).wait()
    assert one.tolist() == [dist.get_world_size()] * 2
    made.shutdown()


def made_by_dist2() -> None:
    try:
        from torch.distributed import _dist2
    except ImportError:
        return
    store = dist.PrefixStore("by dist2", c10d._get_default_store())
    group = _dist2._BACKENDS["nccl"](store, dist.get_rank(), dist.get_world_size(), timedelta(seconds=20), device(),
                                     is_high_priority_stream=True)  # fmt: skip
    backend = group._get_backend(device())
    assert isinstance(backend, ProcessGroupNCCL) and backend.options.is_high_priority_stream
    group.shutdown()


def main() -> None:
    asked = sys.argv[1] if len(sys.argv) > 1 else None
    if KIND == "cuda":
        torch.cuda.set_device(device())
    assert dist.is_nccl_available() and dist.is_backend_available("nccl")
    options = made_options()
    bound = device() if KIND == "cuda" and asked == "nccl" else None
    dist.init_process_group(asked, pg_options=options, timeout=timedelta(seconds=40), device_id=bound)
    world = dist.group.WORLD
    name = world._get_backend(device()).name()
    sys.stdout.write(f"said {dist.get_rank()} {dist.get_backend()} {world.name()} {dist.get_backend_config()} {name}\n")
    check_sum()
    if isinstance(world._get_backend(device()), ProcessGroupNCCL):
        check_carried(world, timedelta(seconds=40))
        calls_of_nccl_alone(world)
    groups(world, options)
    made_by_class(world)
    made_by_dist2()
    if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" and os.environ.get("FAILS") == str(dist.get_rank()):
        os._exit(3)  # the agent starts all ranks again
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
