# SPDX-License-Identifier: BSD-3-Clause
"""What torchcomms (0.3.0) has is in tutti_torch.comms, with its names and in its order; and the stubs, which are
written of the compiled part when the package is built, say the same."""

from __future__ import annotations

import ast
import os
import unittest
from typing import Dict

import tutti_torch.comms as tc

STUB = os.path.join(os.path.dirname(tc.__file__), "__init__.pyi")
WITH_CALL = "async_op hints= timeout="

# torchcomms' methods, with the arguments behind self; "=" behind those that have a default.
TORCHCOMMS = {
    "TorchComm": f"""
        finalize; get_rank; get_size; get_name; get_options; get_device; get_backend; get_backend_version
        get_backend_impl; unsafe_get_backend; get_init_handle; abort; is_abort_supported; is_aborted
        reconfigure uuid init_handles timeout= hints=; set_timeout timeout; set_hints hints
        send tensor dst {WITH_CALL}; recv tensor src {WITH_CALL}; broadcast tensor root {WITH_CALL}
        all_reduce tensor op {WITH_CALL}; reduce tensor root op {WITH_CALL}
        all_gather tensor_list tensor {WITH_CALL}; all_gather_v tensor_list tensor {WITH_CALL}
        all_gather_single output input {WITH_CALL}; reduce_scatter output input_list op {WITH_CALL}
        reduce_scatter_v output input_list op {WITH_CALL}; reduce_scatter_single output input op {WITH_CALL}
        all_to_all_single output input {WITH_CALL}
        all_to_all_v_single output input output_split_sizes input_split_sizes {WITH_CALL}
        all_to_all output_tensor_list input_tensor_list {WITH_CALL}; barrier {WITH_CALL}
        scatter output_tensor input_tensor_list root {WITH_CALL}
        gather output_tensor_list input_tensor root {WITH_CALL}; gather_single output input root {WITH_CALL}
        split ranks name hints= timeout=; batch_op_create; new_window tensor=; get_device_transport
        all_gather_p_init output hints= timeout=; all_gather_p_exec handle input {WITH_CALL}; all_gather_p_free handle
        get_mem_allocator; register_pre_hook callback; register_post_hook callback; register_abort_hook callback
        tensor_register tensor; tensor_deregister tensor""",
    "TorchCommWindow": f"""
        get_size; get_tensor; tensor_register tensor owning=; tensor_deregister; get_attr peer_rank
        put tensor dst_rank target_offset_nelems {WITH_CALL}; map_remote_tensor rank
        signal peer_rank {WITH_CALL}; wait_signal peer_rank {WITH_CALL}
        get_device_window signal_count= counter_count= barrier_count=; register_local_buffer tensor
        deregister_local_buffer handle""",
    "TorchWork": "is_completed; wait; wait_blocking",
    "BatchSendRecv": "send tensor dst; recv tensor src; issue async_op options=",
    "RemovableHandle": "remove",
    "ReduceOp": "PREMUL_SUM factor",
    "P2POp": "__init__ type tensor peer",
    "ReconfigureOptions": "__init__ uuid= init_handles= timeout= hints=",
}
FUNCTIONS = """new_comm backend device name abort_process_on_timeout_or_error= timeout= is_high_priority_stream= store=
    enable_reconfigure= hints=; get_mem_allocator backend; register_backend name backend_class; built_backends
    is_backend_built backend; _is_backend_registered name"""
NAMES = """RedOpType OpName WorkStatus CommOptions TorchCommBackend TorchCommWindowAttr TorchCommWinAccessType P2POpType
    Timeout InitHandle BatchP2POptions SendOptions RecvOptions BroadcastOptions AllReduceOptions ReduceOptions
    AllGatherOptions AllGatherSingleOptions ReduceScatterOptions ReduceScatterSingleOptions AllToAllOptions
    AllToAllSingleOptions AllToAllvSingleOptions BarrierOptions ScatterOptions GatherOptions AllGatherPInitOptions
    AllGatherPExecOptions SendPreHookArgs AllToAllVSinglePreHookArgs GatherSinglePreHookArgs BatchOpIssuePreHookArgs
    CollectivePostHookArgs AllReducePostHookArgs SplitPostHookArgs NewWindowPostHookArgs FinalizePostHookArgs"""


def table(text: str) -> Dict[str, str]:
    rows = [row.split() for line in text.splitlines() for row in line.split(";") if row.strip()]
    joined, last = {}, ""
    for row in rows:
        if joined and row[0].endswith("="):
            joined[last] += " " + " ".join(row)  # the line before goes on
        else:
            last = row[0]
            joined[last] = " ".join(row[1:])
    return joined


def of_node(node: ast.FunctionDef) -> str:
    """"tensor dst async_op hints= timeout=" """
    arguments = node.args.args
    first_default = len(arguments) - len(node.args.defaults)
    words = [a.arg + ("=" if i >= first_default else "") for i, a in enumerate(arguments)]
    return " ".join(word for word in words if word != "self")


def functions_of(nodes: list) -> Dict[str, str]:
    return {node.name: of_node(node) for node in nodes if isinstance(node, ast.FunctionDef)}


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with open(STUB) as file:
            nodes = ast.parse(file.read()).body
        cls.classes = {node.name: functions_of(node.body) for node in nodes if isinstance(node, ast.ClassDef)}
        cls.functions = functions_of(nodes)

    def test_all_that_is_public_is_told(self) -> None:
        self.assertEqual(set(tc.__all__) - {*self.classes, *self.functions}, {"InitHandle"})

    def test_all_of_torchcomms_is_there(self) -> None:
        for name, text in TORCHCOMMS.items():
            for method, arguments in table(text).items():
                self.assertTrue(hasattr(getattr(tc, name), method), f"{name}.{method}")
                said = self.classes[name].get(method) or ""
                self.assertEqual(said[: len(arguments)], arguments, f"{name}.{method}")
                more = said[len(arguments) :].split()  # tutti's own, which nobody has to give
                self.assertTrue(all(word.endswith("=") for word in more), f"{name}.{method}: {more}")
        for name, arguments in table(FUNCTIONS).items():
            self.assertEqual(self.functions.get(name), arguments, name)
        for name in NAMES.split():
            self.assertTrue(hasattr(tc, name), name)

    def test_arguments_are_typed(self) -> None:
        """None is Any, of which a checker learns nothing, in the methods that move data."""
        with open(STUB) as file:
            text = file.read()
        line = next(line for line in text.splitlines() if line.strip().startswith("def all_to_all_v_single("))
        self.assertNotIn("Any", line)
        self.assertIn("-> TorchWork", line)


if __name__ == "__main__":
    unittest.main()
