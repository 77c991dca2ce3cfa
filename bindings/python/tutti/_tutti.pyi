# SPDX-License-Identifier: BSD-3-Clause
"""Types of the compiled part of tutti. tests/python/stubs_test.py compares them with it."""

import builtins
import os
from enum import IntEnum
from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

Buffer = Any  # what has the buffer protocol, __dlpack__ or __array_interface__
Counts = Any  # a sequence of one number a rank; None: packed
Self = TypeVar("Self")

__version__: str
ALL_PEERS: int
ANY_SOURCE: int
ANY_TAG: int
DEVICE_AUTO: int
DEVICE_NONE: int
UNDEFINED: int

class DType(IntEnum):
    INT8 = 0
    UINT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    UINT64 = 7
    BOOL = 8
    FLOAT8_E4M3FN = 9
    FLOAT8_E5M2 = 10
    FLOAT16 = 11
    BFLOAT16 = 12
    FLOAT32 = 13
    FLOAT64 = 14
    COMPLEX64 = 15
    COMPLEX128 = 16

class Op(IntEnum):
    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    PREMUL_SUM = 5
    BAND = 6
    BOR = 7
    BXOR = 8

class Status(IntEnum):
    ARGUMENT = -1
    UNSUPPORTED = -2
    MEMORY = -3
    SYSTEM = -4
    CANCELLED = -5
    TRUNCATED = -6
    PEER_DEAD = -20
    PEER_LEFT = -21
    TIMEOUT = -40
    MISMATCH = -41
    ABORTED = -42
    PROTOCOL = -43
    CONFIG = -60
    AUTH = -61
    BOOTSTRAP = -62
    INTERNAL = -63

class Wire(IntEnum):
    NONE = 0
    BFLOAT16 = 1
    FLOAT8_E4M3 = 2
    FLOAT8_E5M2 = 3
    INT8 = 4

AVG = Op.AVG
BAND = Op.BAND
BFLOAT16 = DType.BFLOAT16
BOOL = DType.BOOL
BOR = Op.BOR
BXOR = Op.BXOR
COMPLEX128 = DType.COMPLEX128
COMPLEX64 = DType.COMPLEX64
FLOAT16 = DType.FLOAT16
FLOAT32 = DType.FLOAT32
FLOAT64 = DType.FLOAT64
FLOAT8_E4M3FN = DType.FLOAT8_E4M3FN
FLOAT8_E5M2 = DType.FLOAT8_E5M2
INT16 = DType.INT16
INT32 = DType.INT32
INT64 = DType.INT64
INT8 = DType.INT8
MAX = Op.MAX
MIN = Op.MIN
PREMUL_SUM = Op.PREMUL_SUM
PROD = Op.PROD
SUM = Op.SUM
UINT16 = DType.UINT16
UINT32 = DType.UINT32
UINT64 = DType.UINT64
UINT8 = DType.UINT8

class Error(builtins.Exception):
    status: Status
    scope: str
    rank: Optional[int]
    peer: Optional[int]
    collective: str
    sequence: Optional[int]
    step: Optional[int]
    errno: Any

class CallError(Error): ...
class CommError(Error): ...
class ContextError(Error): ...
class PeerError(Error): ...
class AbortedError(CommError): ...
class BootstrapError(ContextError): ...
class CancelledError(CallError): ...
class ConfigError(ContextError): ...
class InternalError(ContextError): ...
class MismatchError(CommError): ...
class ProtocolError(CommError): ...
class TruncatedError(CallError): ...
class ArgumentError(CallError, builtins.ValueError): ...
class OutOfMemoryError(CallError, builtins.MemoryError): ...
class SystemCallError(CallError, builtins.OSError): ...
class AuthError(ContextError, builtins.PermissionError): ...
class PeerDeadError(PeerError, builtins.ConnectionError): ...
class PeerLeftError(PeerError, builtins.ConnectionError): ...
class TimeoutError(CommError, builtins.TimeoutError): ...
class UnsupportedError(CallError, builtins.NotImplementedError): ...

class Context:
    def __init__(self, options: Optional[Dict[str, str]] = None) -> None: ...

class Store:
    def __init__(self, address: str, secret: Optional[str] = None, timeout: Optional[float] = None) -> None: ...

class StoreServer:
    def __init__(self, host: str = '127.0.0.1', port: int = 0, secret: Optional[str] = None) -> None: ...
    def __enter__(self: Self) -> Self: ...
    def __exit__(self, *exception: Any) -> Any: ...
    @property
    def address(self) -> Any: ...
    def close(self) -> None: ...
    @property
    def port(self) -> Optional[int]: ...

class Message(NamedTuple):
    source: int
    tag: int
    bytes: int

class Work:
    def __await__(self) -> Generator[Any, None, Any]: ...
    @property
    def duration_ns(self) -> int: ...
    @property
    def error(self) -> Optional[Error]: ...
    def notify(self, function: Callable[..., Any]) -> None: ...
    @property
    def result(self) -> Any: ...
    @property
    def sequence(self) -> int: ...
    def test(self) -> bool: ...
    def wait(self, timeout: Optional[float] = None) -> bool: ...

class Persistent:
    def start(self, async_op: bool = False) -> Optional[Work]: ...

class UserOp:
    def __init__(self, context: Union[None, Context, Comm], function: Callable[..., Any],
                 commutes: bool = True) -> None: ...

class Memory:
    @property
    def address(self) -> Any: ...
    @property
    def nbytes(self) -> int: ...

class Window:
    def __enter__(self: Self) -> Self: ...
    def __exit__(self, *exception: Any) -> Any: ...
    def close(self) -> None: ...
    def compare_swap(self, expected: int, desired: int, peer: int, offset: int = 0, *, async_op: bool = False,
                     persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
                     label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                     premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                     wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                     overlap: bool = False) -> Any: ...
    def fence(self, *, async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
              algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None, dtype: Any = None,
              premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
              wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
              overlap: bool = False) -> Any: ...
    def fetch_add(self, value: int, peer: int, offset: int = 0, *, async_op: bool = False, persistent: bool = False,
                  timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                  stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                  wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                  wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def flush(self, peer: int = -1, *, async_op: bool = False, persistent: bool = False,
              timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
              stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
              wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
              wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def get(self, buffer: Buffer, peer: int, offset: int = 0, *, async_op: bool = False, persistent: bool = False,
            timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
            stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
            wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
            wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    @property
    def n_signals(self) -> int: ...
    def peer(self, rank: int) -> Optional[memoryview]: ...
    def put(self, buffer: Buffer, peer: int, offset: int = 0, *, async_op: bool = False, persistent: bool = False,
            timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
            stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
            wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
            wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def put_signal(self, buffer: Buffer, peer: int, offset: int = 0, index: int = 0, value: int = 1,
                   signal_op: str = 'add', *, async_op: bool = False, persistent: bool = False,
                   timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                   stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                   wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                   wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def signal(self, peer: int, index: int = 0, value: int = 1, signal_op: str = 'add', *, async_op: bool = False,
               persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
               label: Optional[str] = None, stream: Any = None, dtype: Any = None,
               premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
               wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
               overlap: bool = False) -> Any: ...
    def signal_read(self, index: int = 0, stream: Any = None) -> int: ...
    def signal_write(self, value: int, index: int = 0, stream: Any = None) -> None: ...
    def wait_signal(self, value: int, index: int = 0, compare: str = 'ge', source: int = -1, *, async_op: bool = False,
                    persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
                    label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                    premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                    wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                    overlap: bool = False) -> Any: ...

class Comm:
    def __init__(self, rank: int = -1, size: int = -1, *, store: Union[None, str, Store] = None,
                 name: Optional[str] = None, secret: Optional[str] = None, timeout: Optional[float] = None,
                 device: int = -1, survive: bool = False, joins: bool = False, nonblocking: bool = False,
                 context: Union[None, Context, Comm] = None) -> None: ...
    def __enter__(self: Self) -> Self: ...
    def __exit__(self, *exception: Any) -> Any: ...
    def abort(self, reason: Optional[str] = None) -> None: ...
    def admit(self) -> List[int]: ...
    def all_gather(self, send: Optional[Buffer], recv: Optional[Buffer], *, async_op: bool = False,
                   persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
                   label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                   premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                   wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                   overlap: bool = False) -> Any: ...
    def all_gather_v(self, send: Optional[Buffer], recv: Optional[Buffer], counts: Counts, displs: Counts = None, *,
                     async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
                     algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None,
                     dtype: Any = None, premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None,
                     wire_block: int = 0, wire_seed: int = 0, wire_seeds: Optional[Buffer] = None,
                     ordered: bool = False, overlap: bool = False) -> Any: ...
    def all_reduce(self, send: Optional[Buffer], recv: Optional[Buffer] = None, op: Union[str, int, UserOp] = 'sum', *,
                   async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
                   algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                   premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                   wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                   overlap: bool = False) -> Any: ...
    def all_reduce_sparse_block(self, values: Buffer, indices: Buffer, recv: Optional[Buffer], block: int,
                                op: Union[str, int, UserOp] = 'sum', status: Optional[Buffer] = None, *,
                                async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
                                algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None,
                                dtype: Any = None, premul: Union[None, float, Buffer] = None,
                                wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                                wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                                overlap: bool = False) -> Any: ...
    def all_to_all(self, send: Optional[Buffer], recv: Optional[Buffer] = None, *, async_op: bool = False,
                   persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
                   label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                   premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                   wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                   overlap: bool = False) -> Any: ...
    def all_to_all_v(self, send: Optional[Buffer], recv: Optional[Buffer], send_counts: Counts, recv_counts: Counts,
                     send_displs: Counts = None, recv_displs: Counts = None, *, async_op: bool = False,
                     persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
                     label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                     premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                     wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                     overlap: bool = False) -> Any: ...
    def all_to_all_v_dynamic(self, send: Optional[Buffer], recv: Optional[Buffer], send_counts: Counts,
                             recv_counts: Counts, send_displs: Counts = None, recv_displs: Counts = None,
                             status: Optional[Buffer] = None, *, async_op: bool = False, persistent: bool = False,
                             timeout: Optional[float] = None, algorithm: Optional[str] = None,
                             label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                             premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None,
                             wire_block: int = 0, wire_seed: int = 0, wire_seeds: Optional[Buffer] = None,
                             ordered: bool = False, overlap: bool = False) -> Any: ...
    def barrier(self, *, async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
                algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                overlap: bool = False) -> Any: ...
    def broadcast(self, buffer: Buffer, root: int = 0, *, async_op: bool = False, persistent: bool = False,
                  timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                  stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                  wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                  wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def contributors(self, work: Optional[Work] = None) -> List[int]: ...
    @property
    def device(self) -> int: ...
    def dup(self) -> Comm: ...
    def exscan(self, send: Optional[Buffer], recv: Optional[Buffer] = None, op: Union[str, int, UserOp] = 'sum', *,
               async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
               algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None, dtype: Any = None,
               premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
               wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
               overlap: bool = False) -> Any: ...
    def flush(self, timeout: Optional[float] = None) -> bool: ...
    def gather(self, send: Optional[Buffer], recv: Optional[Buffer] = None, root: int = 0, *, async_op: bool = False,
               persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
               label: Optional[str] = None, stream: Any = None, dtype: Any = None,
               premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
               wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
               overlap: bool = False) -> Any: ...
    def gather_v(self, send: Optional[Buffer], recv: Optional[Buffer] = None, counts: Counts = None,
                 displs: Counts = None, root: int = 0, *, async_op: bool = False, persistent: bool = False,
                 timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                 stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                 wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                 wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    @property
    def id(self) -> int: ...
    def mem_alloc(self, nbytes: int) -> Memory: ...
    def probe(self, source: int = -1, tag: int = -1) -> Optional[Message]: ...
    @property
    def rank(self) -> int: ...
    def recv(self, buffer: Buffer, source: int = -1, tag: int = -1, *, async_op: bool = False, persistent: bool = False,
             timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
             stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
             wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
             wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def reduce(self, send: Optional[Buffer], recv: Optional[Buffer] = None, op: Union[str, int, UserOp] = 'sum',
               root: int = 0, *, async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
               algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None, dtype: Any = None,
               premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
               wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
               overlap: bool = False) -> Any: ...
    def reduce_scatter(self, send: Optional[Buffer], recv: Optional[Buffer] = None, op: Union[str, int, UserOp] = 'sum',
                       *, async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
                       algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None,
                       dtype: Any = None, premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None,
                       wire_block: int = 0, wire_seed: int = 0, wire_seeds: Optional[Buffer] = None,
                       ordered: bool = False, overlap: bool = False) -> Any: ...
    def reduce_scatter_v(self, send: Optional[Buffer], recv: Optional[Buffer], counts: Counts,
                         op: Union[str, int, UserOp] = 'sum', *, async_op: bool = False, persistent: bool = False,
                         timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                         stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                         wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                         wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def scan(self, send: Optional[Buffer], recv: Optional[Buffer] = None, op: Union[str, int, UserOp] = 'sum', *,
             async_op: bool = False, persistent: bool = False, timeout: Optional[float] = None,
             algorithm: Optional[str] = None, label: Optional[str] = None, stream: Any = None, dtype: Any = None,
             premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
             wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
             overlap: bool = False) -> Any: ...
    def scatter(self, send: Optional[Buffer], recv: Optional[Buffer] = None, root: int = 0, *, async_op: bool = False,
                persistent: bool = False, timeout: Optional[float] = None, algorithm: Optional[str] = None,
                label: Optional[str] = None, stream: Any = None, dtype: Any = None,
                premul: Union[None, float, Buffer] = None, wire: Union[None, str, int] = None, wire_block: int = 0,
                wire_seed: int = 0, wire_seeds: Optional[Buffer] = None, ordered: bool = False,
                overlap: bool = False) -> Any: ...
    def scatter_v(self, send: Optional[Buffer], recv: Optional[Buffer] = None, counts: Counts = None,
                  displs: Counts = None, root: int = 0, *, async_op: bool = False, persistent: bool = False,
                  timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                  stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                  wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                  wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def send(self, buffer: Buffer, dest: int, tag: int = 0, *, async_op: bool = False, persistent: bool = False,
             timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
             stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
             wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
             wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    def sendrecv(self, send: Optional[Buffer], recv: Optional[Buffer], dest: int, source: int = -1, send_tag: int = 0,
                 recv_tag: int = -1, *, async_op: bool = False, persistent: bool = False,
                 timeout: Optional[float] = None, algorithm: Optional[str] = None, label: Optional[str] = None,
                 stream: Any = None, dtype: Any = None, premul: Union[None, float, Buffer] = None,
                 wire: Union[None, str, int] = None, wire_block: int = 0, wire_seed: int = 0,
                 wire_seeds: Optional[Buffer] = None, ordered: bool = False, overlap: bool = False) -> Any: ...
    @property
    def sequence(self) -> int: ...
    def set_device(self, device: int) -> None: ...
    def shrink(self, exclude: Sequence[int] = ()) -> Comm: ...
    @property
    def size(self) -> int: ...
    def split(self, colour: int, key: int = 0) -> Optional[Comm]: ...
    def state(self) -> bool: ...
    timeout: float
    def window(self, memory: Optional[Buffer], n_signals: int = 0) -> Window: ...

class group:
    def __init__(self, async_op: bool = False) -> None: ...
    def __enter__(self: Self) -> Self: ...
    def __exit__(self, *exception: Any) -> Any: ...
    @property
    def work(self) -> Optional[Work]: ...

def algorithm_load(path: Union[str, "os.PathLike[str]"]) -> str: ...
def algorithm_offers(name: Optional[str], kind: str) -> bool: ...
def dtype_bytes(dtype: Any) -> int: ...
def option_get(name: Optional[str]) -> Tuple[str, int]: ...
def version() -> int: ...
