# SPDX-License-Identifier: BSD-3-Clause
"""What torch.compile has to be told of ReduceOp. `ReduceOp.SUM` when compiled is an attribute of a class of C++,
whose metaclass Dynamo does not look into: it asks for the value itself, and knows only types that it has a row for."""

from __future__ import annotations

from torch._dynamo.variables.builder import SourcelessBuilder
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from .. import ReduceOp


def know_reductions() -> None:
    rows = getattr(SourcelessBuilder, "_type_handlers", None)  # not in every version; those without it ask otherwise
    if rows is not None:
        rows.setdefault(ReduceOp, lambda tx, value: UserDefinedObjectVariable(value))
