# SPDX-License-Identifier: Apache-2.0
"""transfer_to_npu: a CUDA program runs unchanged."""

import pytest

TRANSFER = "import torch, torch_npu\nimport torch_npu.contrib.transfer_to_npu\n"

TRAINING = """
import torch, torch.nn as nn, torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

assert torch.cuda.is_available()
torch.cuda.manual_seed_all(1)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
torch.cuda.set_device(device)
torch.backends.cudnn.benchmark = True
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
assert next(model.parameters()).is_cuda
model = model.to("cuda")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = GradScaler()
data = TensorDataset(torch.randn(64, 4), torch.zeros(64, dtype=torch.long))
losses = []
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for epoch in range(5):
    for x, y in DataLoader(data, batch_size=16, pin_memory=True):
        x, y = x.cuda(non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        with autocast():
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0
assert losses[-1] < losses[0] / 2
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    z = torch.ones(3, device="cuda") * 2
torch.cuda.current_stream().wait_stream(side)
g = torch.Generator(device="cuda").manual_seed(3)
r = torch.rand(2, device="cuda:0", generator=g)
assert isinstance(g, torch.Generator)
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert (z[None] @ z[:, None]).dtype == torch.bfloat16
assert torch.cuda.max_memory_allocated() > 0
assert torch.cuda.memory.mem_get_info() == torch.cuda.mem_get_info()
torch.save(model.state_dict(), "model.pt")
state = torch.load("model.pt", map_location="cuda:0")
assert state["0.weight"].is_cuda
assert torch.load("model.pt", map_location=torch.device("cpu"))["0.weight"].device.type == "cpu"
assert torch.cuda.FloatTensor([1.0]).is_cuda and torch.ones(1).type("torch.cuda.HalfTensor").is_cuda
assert torch.cuda.device_count() >= 1 and torch.cuda.get_device_name(device)
torch.cuda.empty_cache()
print("trained on", z.device)
"""


def test_a_training_script(run_python):
    done = run_python(TRANSFER + TRAINING)
    assert done.stdout.strip() == "trained on npu:0"


def test_by_variable(run_python):
    done = run_python("import torch_npu\n" + TRAINING, TORCH_TRANSFER_TO_NPU="1")
    assert done.stdout.strip() == "trained on npu:0"


def test_silent(run_python):
    done = run_python(TRANSFER + TRANSFER)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    "code",
    [
        "assert torch.zeros(2, device='cuda').is_npu",
        "assert torch.zeros_like(torch.ones(2), device='cuda').is_npu",
        "assert torch.tensor([1, 2], device=torch.device('cuda', 0)).is_npu",
        "assert torch.ones(2).to('cuda:0', torch.float16).is_npu",
        "assert torch.ones(2).to(device='cuda').is_npu",
        "assert torch.ones(2).to(0).is_npu and torch.ones(2).cuda(0).is_npu",
        "assert torch.ones(2).new_zeros(3, device='cuda').is_npu",
        "assert torch.nn.Linear(2, 2, device='cuda').weight.is_npu",
        "assert torch.nn.Linear(2, 2).cuda('cuda:0').weight.is_npu",
        "assert torch.ones(2).untyped_storage().cuda().is_cuda",
        "torch.set_default_device('cuda'); assert torch.zeros(1).is_npu",
        "torch.set_default_tensor_type('torch.cuda.FloatTensor'); assert torch.zeros(1).is_npu",
        "assert torch.amp.GradScaler('cuda').scale(torch.ones(1).cuda()).is_npu",
        "with torch.device('cuda'): assert torch.zeros(1).is_npu",
        "assert isinstance(torch.zeros(1).device, torch.device)",
        "import pickle; assert pickle.loads(pickle.dumps(torch.device('cuda:0'))).type == 'npu'",
        "assert torch.zeros(1, device='cpu').device == torch.device('cpu')",
        "assert torch.cuda.get_rng_state('cuda').numel() == 16",
        "with torch.random.fork_rng(devices=[0], device_type='cuda'): torch.rand(1, device='cuda')",
        "assert torch.Stream(device='cuda').device.type == 'npu'",
        "assert isinstance(torch.cuda.Stream(), torch.Stream)",
        "s = torch.cuda.Stream(); assert s.cuda_stream == s.npu_stream",
        "assert torch.get_device_module('cuda') is torch.npu",
        "torch.cuda.nvtx.range_push('a'); torch.cuda.nvtx.range_pop()",
        "assert torch.cuda.get_device_capability() == (0, 0)",
        "assert torch.profiler.ProfilerActivity.CUDA == torch.profiler.ProfilerActivity.NPU",
    ],
)
def test_ways_to_say_cuda(run_python, code):
    run_python(TRANSFER + code)


def test_libraries_around(run_python):
    run_python(
        TRANSFER
        + """
kernel = torch.autograd.profiler_util.Kernel("forward", "cuda", 11)
assert kernel == ("forward", "npu", 11) and kernel.device == "npu"
from torch.utils import cpp_extension
plain = cpp_extension.include_paths()
for paths in (cpp_extension.include_paths, cpp_extension.library_paths):
    found = paths(device_type="cuda")
    assert set(paths("cpu")) <= set(found) and any("torch_npu" in path for path in found), found
assert cpp_extension.include_paths() == plain
assert torch._C._host_emptyCache == torch_npu._C._npu_hostEmptyCache
assert torch._C._host_emptyCache() is None
try:
    torch._C._host_emptyCache(0)
except TypeError:
    pass
else:
    raise AssertionError
with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    assert torch.ones(3, device="cuda").sum().item() == 3
"""
    )


def test_jit_still_works(run_python):
    # A file: torch.jit.script reads the source.
    run_python(
        TRANSFER + "open('m.py', 'w').write('''\n"
        "import torch\n"
        "from typing import Optional\n"
        "def f(x, device: Optional[torch.device] = None):\n"
        "    return x + torch.zeros(3, device=x.device) + torch.ones_like(x)\n"
        "''')\n"
        "import sys; sys.path.insert(0, '.')\n"
        "import m\n"
        "f = torch.jit.script(m.f)\n"
        "assert f(torch.ones(3).cuda()).tolist() == [2, 2, 2]"
    )


def test_checkpoint_saved_on_a_gpu(run_python):
    run_python(
        TRANSFER + "import io\n"
        "from torch.serialization import _package_registry\n"
        "restore = [r[2] for r in _package_registry if r[0] == 15][0]\n"
        "storage = torch.arange(3, dtype=torch.uint8).untyped_storage()\n"
        "assert restore(storage, 'cuda:0').is_npu\n"
        "assert restore(storage, 'cpu') is None\n"
        "try: restore(storage, 'cuda:77')\n"
        "except RuntimeError as e: assert 'map_location' in str(e)\n"
        "else: raise SystemExit('restored')"
    )


def test_backend_names():
    from torch_npu.contrib._transfer._libraries import _to_hccl

    assert _to_hccl("nccl") == "hccl"
    assert _to_hccl("cpu:gloo,cuda:nccl") == "cpu:gloo,npu:hccl"
    assert _to_hccl("tcp://nccl:1") == "tcp://nccl:1"
    assert _to_hccl(None) is None
