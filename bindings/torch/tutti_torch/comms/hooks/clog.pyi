# SPDX-License-Identifier: BSD-3-Clause
from typing import List

from .. import TorchComm

class clog:
    def __init__(self, output: str, events: List[str], verbose: List[str] = ...) -> None: ...
    def register_with_comm(self, comm: TorchComm) -> None: ...
