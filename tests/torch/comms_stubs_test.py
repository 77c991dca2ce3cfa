# SPDX-License-Identifier: BSD-3-Clause
"""The typed stubs of tutti_torch.comms say what the implementation takes: each class, function, method and argument, by
name, order and default. And what torchcomms (0.3.0) has is there, with its names and in its order."""

from __future__ import annotations

import ast
import inspect
import os
import re
import unittest
from typing import Dict, Optional

import tutti_torch.comms as tc

FOLDER = os.path.dirname(tc.__file__)
STUBS = ("__init__.pyi", "_hook_args.pyi")
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
            joined[last] += " " + " ".join(row)  # goes on with the line before
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


def split_arguments(text: str) -> list:
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += letter in "[(<{"
        depth -= letter in "])>}"
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [part.strip() for part in [*parts, current] if part.strip()]


def of_docstring(function: object, name: str) -> Optional[str]:
    """What pybind says at the head of a function's documentation."""
    found = re.match(rf"{name}\((.*)\) -> ", (function.__doc__ or "").splitlines()[0])
    if not found:
        return None
    words = []
    for part in split_arguments(found[1]):
        argument, _, rest = part.partition(":")
        words.append(argument + ("=" if "=" in rest else ""))
    return " ".join(word for word in words if word != "self")


def of_object(function: object, name: str) -> str:
    said = of_docstring(function, name)
    if said is not None:
        return said
    parameters = inspect.signature(function).parameters.values()
    words = [p.name + ("" if p.default is p.empty else "=") for p in parameters]
    return " ".join(word for word in words if word != "self")


class Stubs(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        nodes = []
        for stub in STUBS:
            with open(os.path.join(FOLDER, stub)) as file:
                nodes += ast.parse(file.read()).body
        cls.classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
        cls.functions = {node.name: of_node(node) for node in nodes if isinstance(node, ast.FunctionDef)}

    def methods(self, name: str) -> Dict[str, str]:
        body = self.classes[name].body
        return {
            node.name: of_node(node)
            for node in body
            if isinstance(node, ast.FunctionDef)
            and not any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list)
        }

    def attributes(self, name: str) -> set:
        node = self.classes[name]
        found = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign)}
        found |= {
            one.name
            for one in node.body
            if isinstance(one, ast.FunctionDef)
            and any(isinstance(d, ast.Name) and d.id == "property" for d in one.decorator_list)
        }
        for base in node.bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name) and base.id in self.classes:
                found |= self.attributes(base.id)
        return found

    def test_all_that_is_public_is_told(self) -> None:
        told = {*self.classes, *self.functions, "InitHandle"}
        self.assertEqual({name for name in tc.__all__ if name not in told}, set())
        public = {name for name in told if not name.startswith("_")}
        self.assertEqual({name for name in public if name not in tc.__all__}, set())

    def test_functions(self) -> None:
        for name, said in self.functions.items():
            self.assertEqual(of_object(getattr(tc, name), name), said, name)

    def test_methods(self) -> None:
        for name in self.classes:
            if name.startswith("_"):
                continue
            own = getattr(tc, name)
            for method, said in self.methods(name).items():
                self.assertEqual(of_object(inspect.getattr_static(own, method, None) or getattr(own, method), method)
                                 if not isinstance(inspect.getattr_static(own, method), staticmethod)
                                 else of_object(getattr(own, method), method), said, f"{name}.{method}")
            missing = {
                method
                for method in vars(own)
                if not method.startswith("_") and callable(getattr(own, method)) and method not in self.methods(name)
                and method not in self.attributes(name)
            }
            self.assertEqual(missing, set(), name)

    def test_attributes(self) -> None:
        for name in self.classes:
            if name.startswith("_"):
                continue
            own = getattr(tc, name)
            for attribute in self.attributes(name):
                self.assertTrue(hasattr(own, attribute), f"{name}.{attribute}")
            properties = {word for word, what in vars(own).items()
                          if isinstance(what, property) and not word.startswith("_")}
            inherited = {"name", "value"}  # members of enumerations
            self.assertEqual(properties - self.attributes(name) - inherited, set(), name)

    def test_all_of_torchcomms_is_there(self) -> None:
        for name, text in TORCHCOMMS.items():
            methods = self.methods(name)
            for method, arguments in table(text).items():
                said = methods.get(method) or ""
                self.assertEqual(said[: len(arguments)], arguments, f"{name}.{method}")
                more = said[len(arguments) :].split()  # arguments of tutti's own, which nobody has to give
                self.assertTrue(all(word.endswith("=") for word in more), f"{name}.{method}: {more}")
        for name, arguments in table(FUNCTIONS).items():
            self.assertEqual(self.functions.get(name), arguments, name)
        for name in NAMES.split():
            self.assertTrue(hasattr(tc, name), name)


if __name__ == "__main__":
    unittest.main()
