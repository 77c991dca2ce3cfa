# SPDX-License-Identifier: BSD-3-Clause
"""Collectives in Python: a pure function that emits the steps of one rank::

    import tutti

    @tutti.algorithm("all_gather")
    def my_ring(rank):
        p, me = rank.size, rank.slot
        for k in range(p - 1):
            rank.send((me + 1) % p, (me - k) % p)
            rank.recv((me - 1) % p, (me - k - 1) % p)
            rank.round()

The function is called once for each rank of a world, with the rank as its argument; what it emits is traced, proved
and run by the library, which never calls it again for that world. It must depend on nothing but the rank's numbers:
slot, size, root, radix, levels (lists of group sizes). Steps of one rank mean what they mean in program order; what
may overlap is found out. docs/schedules.md has the rules, docs/write_a_collective.md the way from here to a result.

This file needs nothing but Python, and the library has a copy of it: `import tutti` works in every file that tutti
loads."""

import operator
import os
import sys

KINDS = ("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all",
         "barrier", "scan", "exscan")
_BLOCK_A_SLOT = {"all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"}
# Bits of enum tutti_needs.
NEEDS = {"commutative": 1, "power_of_two": 2, "levels": 4, "equal_blocks": 8, "rank_order": 16, "own_counts": 32,
         "takes_radix": 64}
MOST_STEPS = 1 << 22
MOST_CPU_SECONDS = 10
IDLE_SECONDS = 10
MOST_MEMORY = 8 << 30


def _whole(value, what):
    """A number of 32 bits, of whatever type."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}, no whole number") from None
    if not 0 <= number < 1 << 32:
        raise ValueError(f"{what} is {number}")
    return number


class Unsupported(Exception):
    """Raise it where the function does not do a world; the library then takes another algorithm, or says so."""


class Chunk:
    """A place in a buffer. A bare number is one in DATA."""

    def __init__(self, buffer, index):
        self.buffer, self.index = buffer, index


def data(index):
    """Chunk `index` of DATA, input and output as one."""
    return Chunk("data", index)


def scratch(index):
    """Chunk `index` of SCRATCH, which starts undefined."""
    return Chunk("scratch", index)


def input(index):  # pylint: disable=redefined-builtin
    """Chunk `index` of IN, what all_to_all sends to rank `index`; read-only."""
    return Chunk("in", index)


class Rank:
    """One rank of a world: its numbers, and the steps that it emits."""

    def __init__(self, slot, size, root, radix, levels):
        self.slot, self.size, self.root, self.radix, self.levels = slot, size, root, radix, levels
        self._lines = []

    def send(self, peer, chunk, n=1):
        """Sends n chunks; the peer emits a recv (or recv_reduce) of as many, k-th with k-th."""
        self._emit("send", self._peer(peer), *self._place(chunk), self._count(n))

    def recv(self, peer, chunk, n=1):
        """Receives n chunks from the peer into this one and those behind it."""
        self._emit("recv", self._peer(peer), *self._place(chunk), self._count(n))

    def recv_reduce(self, peer, chunk, n=1, side="right"):
        """Receives and combines: side says on which side of the operation what comes in is."""
        self._emit("recv_reduce", self._peer(peer), *self._place(chunk), self._count(n), self._side(side))

    def copy(self, to, chunk, n=1):
        """Copies n chunks from `chunk` to `to`."""
        self._emit("copy", *self._place(to), *self._place(chunk), self._count(n))

    def reduce(self, to, chunk, n=1, side="right"):
        """Combines n chunks from `chunk` into `to`."""
        self._emit("reduce", *self._place(to), *self._place(chunk), self._count(n), self._side(side))

    def call(self, kind, base, stride, size, chunk, n_chunks, width=1, root=0):
        """A whole collective among slots base + i * stride, i < size, on n_chunks times width chunks of DATA."""
        if kind not in KINDS:
            raise ValueError(f"there is no kind {kind!r}")
        self._emit("call", kind, *(_whole(word, "an argument of call")
                                   for word in (base, stride, size, chunk, n_chunks, width, root)))

    def round(self):
        """Ends a round: for drawings, and for schedules that are too long to be kept whole. No barrier."""
        self._lines.append("round")

    # ---- checks ----
    def _emit(self, *words):
        if len(self._lines) >= MOST_STEPS:
            raise OverflowError(f"rank {self.slot} emits more than {MOST_STEPS} steps")
        self._lines.append(" ".join(map(str, words)))

    def _peer(self, peer):
        number = _whole(peer, "the peer")
        if number >= self.size or number == self.slot:
            raise ValueError(f"the peer is {number}, which is " +
                             ("the rank itself" if number == self.slot else f"none of {self.size} ranks"))
        return number

    def _place(self, chunk):
        place = chunk if isinstance(chunk, Chunk) else Chunk("data", chunk)
        return place.buffer, _whole(place.index, "the chunk")

    def _count(self, n):
        number = _whole(n, "n")
        if number == 0:
            raise ValueError("n is 0: a step has at least one chunk")
        return number

    @staticmethod
    def _side(side):
        if side not in ("left", "right"):
            raise ValueError(f"side is {side!r}, neither 'left' nor 'right'")
        return side


class _Offer:
    def __init__(self, function, needs, radix, chunks, scratch):  # pylint: disable=redefined-outer-name
        self.function, self.needs, self.radix, self.chunks, self.scratch = function, needs, radix, chunks, scratch


class _Module:
    """What one file has offered."""
    name, help, source, offers = "", "", "", {}


def algorithm(kind, needs="", radix=0, chunks=None, scratch=0, source=""):  # pylint: disable=redefined-outer-name
    """Makes a function an algorithm of a kind ("all_reduce"). A file has one algorithm, which may offer several kinds:
    its name is that of the first function, its help that function's docstring.

    needs: words of NEEDS, with spaces between them: "commutative power_of_two".
    radix: what a radix of 0 means; 0: it has none.
    chunks: into how many chunks the data is cut: a number, or a function of the world (size, root, radix, levels); a
    multiple of the number of blocks, which is what it is if this is left out.
    scratch: number of chunks of SCRATCH, the same.
    source: paper or specification."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r}: one of {', '.join(KINDS)}")
    words = needs.split() if isinstance(needs, str) else list(needs)
    unknown = [word for word in words if word not in NEEDS]
    if unknown:
        raise ValueError(f"needs has {unknown[0]!r}: it may have {', '.join(NEEDS)}")

    def register(function):
        if kind in _Module.offers:
            raise ValueError(f"two functions offer {kind}")
        if not _Module.offers:
            _Module.name = function.__name__
            _Module.help = " ".join((function.__doc__ or "").split("\n\n")[0].split())[:120]
        _Module.source = _Module.source or " ".join(source.split())[:200]
        _Module.offers[kind] = _Offer(function, sum(NEEDS[word] for word in set(words)), operator.index(radix),
                                      chunks, scratch)
        return function

    return register


# ---- what the library runs ----
def _number_of(what, value, world):
    return _whole(value(world) if callable(value) else value, what)


def trace(kind, size, root=0, radix=0, levels=()):
    """The text of the plan that the loaded functions emit (src/sched/plan.h)."""
    offer = _Module.offers[kind]
    world = Rank(0, size, root, radix or offer.radix, levels)
    chunks = (size if kind in _BLOCK_A_SLOT else 1) if offer.chunks is None else offer.chunks
    lines = [f"plan {kind} slots {size} chunks {_number_of('chunks', chunks, world)} "
             f"scratch {_number_of('scratch', offer.scratch, world)}"]
    total = 0
    for slot in range(size):
        rank = Rank(slot, size, root, radix or offer.radix, levels)
        try:
            offer.function(rank)
        except (Exception, Idle) as error:
            error.tutti_rank = slot
            raise
        total += len(rank._lines)
        if total > MOST_STEPS:
            raise Unsupported(f"ranks 0 to {slot} alone emit more than {MOST_STEPS} steps: so large a world needs C")
        lines.append(f"slot {slot}")
        lines.extend(rank._lines)
    return "\n".join(lines) + "\n"


def _describe():
    if not _Module.offers:
        raise ValueError("no function has @tutti.algorithm(kind)")
    lines = [f"name {_Module.name}", f"help {_Module.help}", f"source {_Module.source}"]
    lines += [f"python {sys.executable}"]  # what was named may be a script that starts it
    lines += [f"kind {kind} {offer.needs} {offer.radix}" for kind, offer in _Module.offers.items()]
    return "\n".join(lines) + "\n"


def _levels_of(text):
    """[[8, 8, 7], [3]] of "8x2,7;3"."""
    levels = []
    for level in filter(None, text.split(";")):
        runs = (run.partition("x") for run in level.split(","))
        levels.append([int(size) for size, _, repeat in runs for _ in range(int(repeat or 1))])
    return levels


class Idle(BaseException):
    """Raised in a function that sleeps, or waits for what does not come."""


def _watch():
    """Looks at the processor time now and then. Whoever catches what is raised is ended at last."""
    import _signal
    import time
    worked, looks = time.process_time(), 0

    def look(*_):
        nonlocal worked, looks
        before, worked, looks = worked, time.process_time(), looks + 1
        if looks * IDLE_SECONDS > 6 * MOST_CPU_SECONDS:
            os.kill(os.getpid(), _signal.SIGKILL)
        if worked - before < 1e-3:
            raise Idle(f"does not come to an end: {IDLE_SECONDS} s have passed without work")

    _signal.signal(_signal.SIGALRM, look)
    _signal.setitimer(_signal.ITIMER_REAL, IDLE_SECONDS, IDLE_SECONDS)


def _limit():
    """A function that does not end, or wants all memory, is ended by the system; one that sleeps is found out."""
    import resource
    _watch()
    for which, most in ((resource.RLIMIT_CPU, MOST_CPU_SECONDS), (resource.RLIMIT_AS, MOST_MEMORY)):
        _, hard = resource.getrlimit(which)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (limit, limit))


def _say(error, path):
    """One line: where in the file, what, and which rank was traced."""
    import traceback
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    what = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    rank = f" (rank {error.tutti_rank})" if hasattr(error, "tutti_rank") else ""
    print(f"\n{path}{f':{line}' if line else ''}: {' '.join(what.split())}{rank}")


def _main(path, copy, out, *shape):
    """Runs the copy of a file as if it were at its path, and writes to `out` what it is, or its plan for a shape."""
    _limit()
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        with open(copy, "rb") as file:
            code = compile(file.read(), path, "exec")
        exec(code, {"__name__": "tutti_algorithm", "__file__": path})
        if shape:
            kind, size, root, radix, levels = shape
            text = trace(kind, int(size), int(root), int(radix), _levels_of(levels))
        else:
            text = _describe()
    except Unsupported as error:
        print(f"\n{' '.join(str(error).split()) or 'it does not do this world'}")
        return 3
    except (Exception, Idle) as error:  # pylint: disable=broad-except
        _say(error, path)
        return 1
    with open(out, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.modules["tutti"] = sys.modules["__main__"]  # what files import, whatever lies beside them
    sys.exit(_main(*sys.argv[1:]))
