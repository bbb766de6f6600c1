# SPDX-License-Identifier: Apache-2.0
import sys
import torch
if sys.argv[1] == "npu":
    import torch_npu
names = ("add", "mul", "matmul", "sum", "relu", "softmax", "conv2d", "cat", "addmm", "exp", "where")
before = {n: getattr(torch, n) for n in names}
methods = {n: getattr(torch.Tensor, n) for n in ("add", "__add__", "matmul", "view", "sum", "backward", "relu")}
functions = {n: getattr(torch.nn.functional, n) for n in ("linear", "gelu", "cross_entropy", "layer_norm")}
forward = torch.nn.Linear.forward, torch.nn.Module.__call__, torch.jit.script
def tables():
    return [torch._C._dispatch_dump_table(f"aten::{n}") for n in ("add.Tensor", "mm", "empty.memory_format", "_to_copy")]
dumped = tables()
import ditorch
assert ditorch.is_enabled()
assert before == {n: getattr(torch, n) for n in names}
assert methods == {n: getattr(torch.Tensor, n) for n in methods}
assert functions == {n: getattr(torch.nn.functional, n) for n in functions}
assert forward == (torch.nn.Linear.forward, torch.nn.Module.__call__, torch.jit.script)
assert torch._C._len_torch_function_stack() == 0 and torch._C._len_torch_dispatch_stack() == 0
assert tables() == dumped
assert not torch.nn.modules.module._global_forward_hooks and not torch.nn.modules.module._global_forward_pre_hooks
assert not torch.autograd._profiler_enabled() and sys.getprofile() is None and sys.gettrace() is None
