# SPDX-License-Identifier: BSD-3-Clause
"""Intel's devices without one, in a PyTorch that was built without them: importing this module makes torch.xpu as much
of a device as the tests of collectives ask for. Its memory, streams and events are those of the stand-in for Level
Zero, which libtutti uses too; streams are SYCL queues as far as libtutti asks them. PyTorch's own operators are
functions of the host in its streams.

What it can not prove: that PyTorch's real queues (SYCL's runtime, its batches and host tasks) order what is appended to
their native lists, that memory of PyTorch's allocator has handles for other processes, what graphs of SYCL do with
calls (here a queue only says that it is being recorded), and anything of torch-xpu-ops: its operators, its XCCL. Not
here: random numbers of its own, compiled kernels, pools of memory, other libraries."""

import torch

import standin_device

ops = standin_device.load("xpu")


class recording:
    """The current stream's queue is being recorded into a graph."""

    def __enter__(self) -> None:
        self.device = standin_device.index_of()
        self.number = ops.current_stream(self.device)
        ops.begin_capture(self.device, self.number)

    def __exit__(self, *error) -> None:
        ops.end_capture(self.device, self.number)


for name, function in {**standin_device.functions("xpu"), "recording": recording}.items():
    setattr(torch.xpu, name, function)
