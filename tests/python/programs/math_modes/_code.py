# SPDX-License-Identifier: Apache-2.0
import functools, torch, torch_npu, torchair
from torch_npu import _C

def modes(function):
    _C._start_work_log()
    function()
    names = ("tf32", "half accumulator", "half partials")
    lines = [line for line in _C._take_work_log() if line.startswith(("gemm", "conv"))]
    return {next((n for n in names if f") {n} out" in line), "exact") for line in lines}

def product(dtype):
    x = torch.ones(4, 4).npu().to(dtype)
    return modes(lambda: x @ x)

cuda = torch.backends.cuda.matmul
assert product(torch.float32) == {"exact"}
torch.npu.matmul.allow_hf32 = True
assert product(torch.float32) == {"tf32"}
torch.npu.matmul.allow_hf32 = False
assert product(torch.float32) == {"exact"}
torch.set_float32_matmul_precision("high")
assert product(torch.float32) == {"tf32"} and product(torch.float64) <= {"exact"}

x = torch.ones(4, 4).npu()
compiled = torch.compile(lambda a: a @ a, backend=torchair.get_npu_backend())
for _ in range(2):
    compiled(x)
assert modes(lambda: compiled(x)) == {"tf32"}
torch.set_float32_matmul_precision("highest")
assert modes(lambda: compiled(x)) == {"exact"}, "a recording with other products was replayed"

assert product(torch.bfloat16) == {"half partials"}
cuda.allow_bf16_reduced_precision_reduction = False
assert product(torch.bfloat16) == {"exact"}
assert product(torch.float16) == {"half partials"}
cuda.allow_fp16_accumulation = True
assert product(torch.float16) == {"half accumulator"}

image, weight = torch.ones(1, 2, 5, 5).npu(), torch.ones(3, 2, 3, 3).npu()
convolution = functools.partial(torch.nn.functional.conv2d, image, weight)
assert modes(convolution) == {"tf32"}  # as torch.cuda and the NPU have it
torch.npu.conv.allow_hf32 = False
assert modes(convolution) == {"exact"}
torch.npu.conv.allow_hf32 = True
torch.backends.cudnn.allow_tf32 = False
assert modes(convolution) == {"exact"}
