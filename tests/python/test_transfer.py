# SPDX-License-Identifier: Apache-2.0
"""transfer_to_npu: a CUDA program runs unchanged."""

import pytest
from programs import program

TRANSFER = "import torch, torch_npu\nimport torch_npu.contrib.transfer_to_npu\n"

TRAINING = program(__file__, "_training")


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


HELPERS = """
from torch_npu.contrib import transfer_to_npu as transfer
from unittest.mock import patch

assert transfer._replace_cuda_to_npu_in_list(["cuda:1", 2, "cpu", True], True) == ["npu:1", "npu:2", "cpu", True]
assert transfer._replace_cuda_to_npu_in_list(["cuda", 2], False) == ["npu", 2]
given = {}
for name, value in (("device", 1), ("map_location", {"cuda:0": "cuda:1"}), ("device_type", "cuda")):
    assert name in transfer.device_kwargs_list
    transfer._replace_cuda_to_npu_in_kwargs(given, name, value)
assert given == {"device": "npu:1", "map_location": {"npu:0": "npu:1"}, "device_type": "npu"}, given
class Mine:
    @staticmethod
    def to(*args, **kwargs):
        return args, kwargs
transfer._device_wrapper(Mine, ["to", "absent"])
assert Mine.to(3, "cuda:1", device="cuda") == (("npu:3", "npu:1"), {"device": "npu"})
transfer._device_wrapper = lambda enter, names: None
transfer._init()
assert torch.ones(1, device="cuda").device.type == "npu"
with patch("torch.distributed.Backend") as backend:
    backend.default_device_backend_map = {"cuda": "nccl", "npu": "hccl"}
    transfer._del_nccl_device_backend_map()
    assert backend.default_device_backend_map == {"npu": "hccl"}
    del backend.default_device_backend_map
    transfer._del_nccl_device_backend_map()
"""


def test_helpers_that_programs_replace(run_python):
    run_python(TRANSFER + HELPERS)
