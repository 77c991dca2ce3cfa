# SPDX-License-Identifier: BSD-3-Clause
"""The collectives as operators of PyTorch (torch.ops.tutti_comms.all_reduce, ...), which torch.compile can trace.

All have one form: flat inputs, the numbers of elements of the outputs, the communicator's key, and what else a call
may have; they return new flat tensors. So none changes an argument, each has a formula for its gradient, and one
function describes the results of all to the compiler. They keep their order in a compiled graph, and none is left out:
PyTorch calls that an ordered effect (for Inductor, see inductor.py).

The gradient of a call is that of the sum of all ranks' losses. A rank's backward is a call of all ranks again: so all
ranks have to agree on whether the inputs require grad, and each has to use what it got."""

import functools
import itertools
import os
from datetime import timedelta
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from ..._C import comms as _comms
from ..known import comm_of
from .inductor import keep_order

NAMESPACE = "tutti_comms"
ARGUMENTS = (
    "Tensor[] inputs, SymInt[] counts, ScalarType dtype, Device device, str comm, str op, int peer, SymInt[] splits, "
    "str[] hints, int timeout_ms"
)


class Args(NamedTuple):
    """What the operators are given besides the inputs."""

    counts: List[int]  # elements of each output
    dtype: torch.dtype
    device: torch.device
    comm: str
    op: str = "SUM"
    peer: int = -1  # root, dst, src
    splits: List[int] = []  # all_to_all_v_single: elements for each rank, then from each; batch: dsts, then srcs;
    # calls on windows, whose key is in the place of the communicator's: the offset
    hints: List[str] = []  # name, value, name, value
    timeout_ms: int = 0  # 0: the communicator's


# ---- how each is carried out ----


class Running(NamedTuple):
    """A call whose work is under way."""

    work: Any
    outputs: List[Tensor]
    inputs: List[Tensor]


def plain(tensor: Tensor) -> Tensor:
    """Flat, contiguous, nothing left to be conjugated or negated."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1)


def reduce_op(name: str) -> Any:
    from .. import ReduceOp

    return getattr(ReduceOp, name)


CALLS = _comms._calls()  # for each a letter an argument (tensors/request.hpp)


def run_call(name: str, comm: Any, i: List[Tensor], o: List[Tensor], a: Args, **how: Any) -> Any:
    """The method of that name. What reduce leaves in the tensors of the other ranks is not said; here they keep what
    they had. The other ranks of a scatter may have an input, too, for the sake of the gradient (calls.scatter)."""
    form = CALLS[name][0]
    at_root = comm.get_rank() == a.peer
    if "t" in form:
        o[0].copy_(i[0])
    sent, got = split_at(a, comm.get_size())
    place = o[0].clone() if name == "reduce" and not at_root else o[0] if o else None
    values = {
        "t": place, "i": i[0] if i else None, "o": place, "p": a.peer, "r": a.op, "s": got, "S": sent,
        "I": i if name != "scatter" or at_root else [], "O": o if name != "gather" or at_root else [],
    }  # fmt: skip
    given = [reduce_op(a.op) if letter == "r" else values[letter] for letter in form]
    return getattr(comm, name)(*given, **how)


def run_batch(comm: Any, i: List[Tensor], o: List[Tensor], a: Args, **how: Any) -> Any:
    batch = comm.batch_op_create()
    for tensor, dst in zip(i, a.splits):
        batch.send(tensor, dst)
    for tensor, src in zip(o, a.splits[len(i) :]):
        batch.recv(tensor, src)
    return batch.issue(how["async_op"])


def run_map_remote_tensor(window: Any, i: List[Tensor], o: List[Tensor], a: Args, **how: Any) -> None:
    part = window.map_remote_tensor(a.peer)
    if part.numel() != o[0].numel():
        raise RuntimeError(
            f"tutti: map_remote_tensor: the part of rank {a.peer} has {part.numel()} elements, that of this rank "
            f"{o[0].numel()}: compiled programs know only this rank's"
        )
    o[0].copy_(part.view(-1))


def split_at(a: Args, n: int) -> Tuple[List[int], List[int]]:
    return list(a.splits[:n]), list(a.splits[n:])


RUN: Dict[str, Callable] = {
    **{name: functools.partial(run_call, name) for name in CALLS},
    "batch": run_batch,
    "put": lambda w, i, o, a, **how: w.put(i[0], a.peer, a.splits[0], **how),
    "get": lambda w, i, o, a, **how: w.get(o[0], a.peer, a.splits[0], **how),
    "put_signal": lambda w, i, o, a, **how: w.put_signal(i[0], a.peer, a.splits[0], **how),
    "signal": lambda w, i, o, a, **how: w.signal(a.peer, **how),
    "wait_signal": lambda w, i, o, a, **how: w.wait_signal(a.peer, **how),
    "map_remote_tensor": run_map_remote_tensor,
}


def start(call: str, inputs: List[Tensor], a: Args, async_op: bool) -> Running:
    comm = comm_of(a.comm)
    flat = [plain(tensor) for tensor in inputs]
    outputs = [torch.empty(count, dtype=a.dtype, device=a.device) for count in a.counts]
    hints = dict(zip(a.hints[::2], a.hints[1::2])) or None
    timeout = timedelta(milliseconds=a.timeout_ms) if a.timeout_ms else None
    return Running(RUN[call](comm, flat, outputs, a, async_op=async_op, hints=hints, timeout=timeout), outputs, flat)


def described(inputs: List[Tensor], a: Args) -> List[Tensor]:
    """The results, as the compiler has to know them."""
    keep_order(operators)
    return [torch.empty(count, dtype=a.dtype, device=a.device) for count in a.counts]


# ---- their gradients ----


def call(name: str, inputs: List[Tensor], a: Args, **changed: Any) -> List[Tensor]:
    return getattr(torch.ops.tutti_comms, name)(inputs, *a._replace(**changed))


def spread(a: Args, n: int, x: Tensor, y: Tensor, grad: Tensor) -> Tensor:
    """The gradient of one rank's x in y = op of all ranks' x, when `grad` is what all ranks together have of y. All are
    flat, and the same on all ranks but for x."""
    if a.op == "SUM":
        return grad
    if a.op == "AVG":
        return grad / n
    if a.op in ("MIN", "MAX"):  # those that tie share it
        mine = (x == y).to(grad.dtype)
        (ties,) = call("all_reduce", [mine], a, counts=[mine.numel()], op="SUM")
        return grad * mine / ties
    if a.op == "PRODUCT":
        rank = comm_of(a.comm).get_rank()
        (all_x,) = call("all_gather_single", [x], a, counts=[n * x.numel()])
        rows = list(all_x.view(n, -1).unbind())
        others = torch.ones_like(x)
        for row in rows[:rank] + rows[rank + 1 :]:
            others = others * row
        return grad * others.conj()
    raise RuntimeError(f"tutti_comms: reductions by {a.op} have no gradient")


def nothing_of(tensor: Tensor, size: int) -> Tensor:
    """Zeros that have the tensor's gradient behind them: of a gradient's gradient this rank has its part, too."""
    return tensor.new_zeros(size) + tensor[:0].sum()


def flat_list(tensors: List[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


class Back(NamedTuple):
    """What a gradient is made of."""

    a: Args
    n: int
    rank: int
    sizes: List[int]  # elements of each input
    x: List[Tensor]  # inputs and outputs: for MIN, MAX and PRODUCT alone
    y: List[Tensor]

    def call(self, name: str, inputs: List[Tensor], counts: List[int], **changed: Any) -> List[Tensor]:
        return call(name, inputs, self.a, counts=counts, **changed)

    def from_root(self, tensor: Tensor) -> Tensor:
        return self.call("broadcast", [tensor], [tensor.numel()])[0]


def back_all_reduce(b: Back, g: List[Tensor]) -> List[Tensor]:
    (grad,) = b.call("all_reduce", g, b.sizes, op="SUM")
    x, y = (b.x[0].reshape(-1), b.y[0]) if b.x else (grad, grad)
    return [spread(b.a, b.n, x, y, grad)]


def back_reduce(b: Back, g: List[Tensor]) -> List[Tensor]:
    grad = b.from_root(g[0])
    x, y = (b.x[0].reshape(-1), b.from_root(b.y[0])) if b.x else (grad, grad)
    own = spread(b.a, b.n, x, y, grad)
    return [own if b.rank == b.a.peer else own + g[0]]  # the others keep what they had


def back_broadcast(b: Back, g: List[Tensor]) -> List[Tensor]:
    (grad,) = b.call("reduce", [g[0]], [g[0].numel()], op="SUM")
    return [grad if b.rank == b.a.peer else nothing_of(grad, grad.numel())]


def back_all_gather_single(b: Back, g: List[Tensor]) -> List[Tensor]:
    return b.call("reduce_scatter_single", g, b.sizes, op="SUM")


def back_all_gather(b: Back, g: List[Tensor]) -> List[Tensor]:
    return b.call("reduce_scatter", g, b.sizes, op="SUM")


def back_all_gather_v(b: Back, g: List[Tensor]) -> List[Tensor]:
    return b.call("reduce_scatter_v", g, b.sizes, op="SUM")


def back_reduce_scatter_v(b: Back, g: List[Tensor]) -> List[Tensor]:
    def gathered(part: Tensor) -> Tensor:
        return flat_list(b.call("all_gather_v", [part], b.sizes))

    grad = gathered(g[0])
    x, y = (flat_list(b.x), gathered(b.y[0])) if b.x else (grad, grad)
    return list(spread(b.a, b.n, x, y, grad).split(b.sizes))


def back_reduce_scatter_single(b: Back, g: List[Tensor]) -> List[Tensor]:
    def gathered(part: Tensor) -> Tensor:
        return b.call("all_gather_single", [part], b.sizes)[0]

    grad = gathered(g[0])
    x, y = (b.x[0].reshape(-1), gathered(b.y[0])) if b.x else (grad, grad)
    return [spread(b.a, b.n, x, y, grad)]


def back_all_to_all_v_single(b: Back, g: List[Tensor]) -> List[Tensor]:
    sent, got = split_at(b.a, b.n)
    return b.call("all_to_all_v_single", g, b.sizes, splits=got + sent)


def back_scatter(b: Back, g: List[Tensor]) -> List[Tensor]:
    grads = b.call("gather", g, b.sizes if b.rank == b.a.peer else [0] * b.n)
    return grads if b.rank == b.a.peer else [nothing_of(grads[0], size) for size in b.sizes]


def back_gather(b: Back, g: List[Tensor]) -> List[Tensor]:
    return b.call("scatter", g if b.rank == b.a.peer else g[:1], b.sizes)


def back_gather_single(b: Back, g: List[Tensor]) -> List[Tensor]:
    return b.call("scatter", list(g[0].chunk(b.n)) if b.rank == b.a.peer else g, b.sizes)


BACK: Dict[str, Callable[[Back, List[Tensor]], List[Tensor]]] = {
    "all_reduce": back_all_reduce,
    "reduce": back_reduce,
    "broadcast": back_broadcast,
    "all_gather": back_all_gather,
    "all_gather_v": back_all_gather_v,
    "all_gather_single": back_all_gather_single,
    "reduce_scatter": back_reduce_scatter_v,
    "reduce_scatter_v": back_reduce_scatter_v,
    "reduce_scatter_single": back_reduce_scatter_single,
    "all_to_all": lambda b, g: b.call("all_to_all", g, b.sizes),
    "all_to_all_single": lambda b, g: b.call("all_to_all_single", g, b.sizes),
    "all_to_all_v_single": back_all_to_all_v_single,
    "scatter": back_scatter,
    "gather": back_gather,
    "gather_single": back_gather_single,
}


def keep(ctx: Any, name: str, inputs: List[Tensor], a: Args, outputs: List[Tensor]) -> None:
    """For the gradient."""
    ctx.name, ctx.args, ctx.shapes = name, a, [tensor.shape for tensor in inputs]
    if a.op in ("MIN", "MAX", "PRODUCT"):
        ctx.save_for_backward(*inputs, *outputs)


def gradients(ctx: Any, grads: List[Tensor]) -> List[Tensor]:
    comm = comm_of(ctx.args.comm)
    saved = list(ctx.saved_tensors)
    n_inputs = len(ctx.shapes)
    b = Back(
        ctx.args,
        comm.get_size(),
        comm.get_rank(),
        [shape.numel() for shape in ctx.shapes],
        saved[:n_inputs],
        saved[n_inputs:],
    )
    back = BACK[ctx.name](b, [grad.contiguous() for grad in grads])
    return [grad.view(shape) for grad, shape in zip(back, ctx.shapes)]


def nothing(a: Args) -> List[Any]:
    """In the place of gradients; PyTorch takes an empty list for one of tensors."""
    return [[] if isinstance(value, list) and not value else None for value in a]


# ---- registering ----


def is_torch_compile_supported(_current_version: Optional[str] = None) -> bool:
    """From PyTorch 2.12 on, effects keep their order in backward graphs, too. A version may be asked about."""
    if os.environ.get("TORCHCOMMS_COMPILE_IGNORE_PYTORCH_VERSION_REQUIREMENT") == "1":
        return True
    version = str(_current_version or torch.__version__)
    return tuple(int(part) for part in version.split(".")[:2]) >= (2, 12)


EAGER = "CompositeExplicitAutograd"
_library = torch.library.Library(NAMESPACE, "DEF")
_tickets = itertools.count(1)
_running: Dict[int, Running] = {}


def ordered(name: str) -> None:
    """Its place among the others in a compiled graph is kept, and it is not left out when nobody uses its results."""
    if not is_torch_compile_supported():
        return
    from torch._library.effects import EffectType

    _library._register_effectful_op(f"{NAMESPACE}::{name}", EffectType.ORDERED)


def define_call(name: str) -> None:
    def eager(inputs: List[Tensor], *args: Any) -> List[Tensor]:
        running = start(name, inputs, Args(*args), async_op=False)
        if running.work is not None:
            running.work.wait()
        return running.outputs

    def fake(inputs: List[Tensor], *args: Any) -> List[Tensor]:
        return described(inputs, Args(*args))

    def setup_context(ctx: Any, inputs: Tuple, output: List[Tensor]) -> None:
        keep(ctx, name, inputs[0], Args(*inputs[1:]), output)

    def backward(ctx: Any, grads: List[Tensor]) -> Tuple:
        return (gradients(ctx, grads), *nothing(ctx.args))

    _library.define(f"{name}({ARGUMENTS}) -> Tensor[]", tags=[torch.Tag.pt2_compliant_tag])
    _library.impl(name, eager, EAGER)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    if name in BACK:
        torch.library.register_autograd(f"{NAMESPACE}::{name}", backward, setup_context=setup_context, lib=_library)
    ordered(name)


def define_begin_and_end() -> None:
    """An asynchronous call: begin starts it and gives a ticket, end waits and gives the results. What is in flight is
    no tensor of the graph, so that the compiler can not move or copy it."""

    def begin(call: str, inputs: List[Tensor], *args: Any) -> Tensor:
        ticket = next(_tickets)
        _running[ticket] = start(call, inputs, Args(*args), async_op=True)
        return torch.tensor([ticket])

    def begin_fake(call: str, inputs: List[Tensor], *args: Any) -> Tensor:
        keep_order(operators)
        return torch.empty(1, dtype=torch.int64)

    def end(call: str, ticket: Tensor, inputs: List[Tensor], *args: Any) -> List[Tensor]:
        running = _running.pop(int(ticket), None)
        if running is None:
            raise RuntimeError(f"tutti_comms: a {call} is waited for that is over")
        running.work.wait()
        return running.outputs

    def end_fake(call: str, ticket: Tensor, inputs: List[Tensor], *args: Any) -> List[Tensor]:
        return described(inputs, Args(*args))

    def setup_context(ctx: Any, inputs: Tuple, output: List[Tensor]) -> None:
        keep(ctx, inputs[0], inputs[2], Args(*inputs[3:]), output)

    def backward(ctx: Any, grads: List[Tensor]) -> Tuple:
        return (None, None, gradients(ctx, grads), *nothing(ctx.args))

    kinds = (
        ("begin", f"begin(str call, {ARGUMENTS}) -> Tensor", begin, begin_fake),
        ("end", f"end(str call, Tensor ticket, {ARGUMENTS}) -> Tensor[]", end, end_fake),
    )
    for name, schema, eager, fake in kinds:
        _library.define(schema, tags=[torch.Tag.pt2_compliant_tag])
        _library.impl(name, eager, EAGER)
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
        ordered(name)
    torch.library.register_autograd(f"{NAMESPACE}::end", backward, setup_context=setup_context, lib=_library)


for _name in RUN:
    define_call(_name)
define_begin_and_end()


def operators() -> List[Any]:
    return [getattr(torch.ops.tutti_comms, name).default for name in (*RUN, "begin", "end")]


def traced(name: str, inputs: List[Tensor], a: Args, ticket: Optional[Tensor] = None) -> Any:
    """The operator of a call; with a ticket, the end of one that was begun."""
    if ticket is not None:
        return torch.ops.tutti_comms.end(name, ticket, inputs, *a)
    return getattr(torch.ops.tutti_comms, name)(inputs, *a)
