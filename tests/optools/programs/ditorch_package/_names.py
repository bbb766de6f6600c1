# SPDX-License-Identifier: Apache-2.0
import sys
import torch, ditorch
target = sys.argv[1]
def real(x):
    return x.untyped_storage().device
def there(x):
    assert real(x).type == target, real(x)
    return x
assert torch.cuda.is_available() and torch.cuda.device_count() >= 1
torch.cuda.set_device("cuda:0"); assert torch.cuda.current_device() == 0
properties = torch.cuda.get_device_properties("cuda")
assert properties.total_memory > 0 and properties.major == 8 and properties.multi_processor_count > 0
assert torch.cuda.get_device_capability("cuda:0") == (8, 0) and torch.cuda.get_device_name()
device = torch.device("cuda")
assert device.type == "cuda"
for where in ("cuda", "cuda:0", device, torch.device("cuda", 0)):
    there(torch.ones(2, device=where)); there(torch.ones(2).to(where)); there(torch.ones(2).cuda(where))
    there(torch.zeros(2).to(device=where, dtype=torch.float16)); there(torch.ones(1).new_zeros(2, device=where))
    there(torch.nn.Linear(2, 2, device=where).weight); there(torch.nn.Linear(2, 2).to(where).weight)
    there(torch.empty_like(torch.ones(2), device=where)); there(torch.tensor([1], device=where))
there(torch.ones(2).cuda(0)); there(torch.ones(2).cuda(non_blocking=True)); there(torch.nn.Linear(2, 2).cuda(0).weight)
there(torch.from_numpy(__import__("numpy").ones(2)).cuda())
there(torch.arange(3, device="cuda")); there(torch.as_tensor([1.0], device="cuda")); there(torch.hann_window(4, device="cuda"))
there(torch.nn.utils.rnn.pack_sequence([torch.ones(2)]).cuda().data)
there(torch.cuda.FloatTensor([1, 2])); there(torch.ones(2).type("torch.cuda.HalfTensor")); there(torch.ones(2).type(torch.cuda.HalfTensor))
assert isinstance(torch.ones(2, device="cuda"), torch.cuda.FloatTensor)
assert torch.ones(2).type() == "torch.FloatTensor"
if target != "cpu":
    assert torch.ones(2, device="cuda").type() == "torch.cuda.FloatTensor"
    assert torch.ones(2, device="cuda").half().type() == "torch.cuda.HalfTensor"
# errors, and what profilers call
for kind in ("OutOfMemoryError", "CudaError", "DeferredCudaCallError"):
    try:
        raise torch.OutOfMemoryError("as a device says it")
    except getattr(torch.cuda, kind):
        assert kind == "OutOfMemoryError"
    except torch.OutOfMemoryError:
        assert kind != "OutOfMemoryError"
torch.cuda.profiler.start(); torch.cuda.profiler.stop()
with torch.cuda.profiler.profile():
    torch.ones(2, device="cuda")
runtime = torch.cuda.cudart()
assert int(runtime.cudaProfilerStart()) == int(runtime.cudaProfilerStop()) == int(runtime.cudaError.success) == 0
torch.cuda.check_error(runtime.cudaProfilerStart())
assert torch.cuda.cudart().cudaMemGetInfo(0)[1] == torch.cuda.mem_get_info()[1]
with torch.device("cuda"):
    there(torch.ones(2))
torch.set_default_device("cuda"); there(torch.ones(2)); torch.set_default_device(None)
with torch.cuda.device(0):
    there(torch.ones(2, device="cuda"))
assert torch.cuda.is_initialized() is True
try:
    torch.ones(2).cuda("meta")
    raise SystemExit("meta is no cuda device")
except RuntimeError as error:
    assert "Invalid device" in str(error)
# streams, events, memory, random numbers
assert isinstance(torch.cuda.current_stream().cuda_stream, int)
assert isinstance(torch.cuda.Stream().cuda_stream, int)
stream = torch.cuda.Stream(device="cuda:0"); begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin.record()
with torch.cuda.stream(stream):
    assert torch.cuda.current_stream() == stream
    x = torch.ones(4, device="cuda") * 2
    end.record(stream)
torch.cuda.current_stream().wait_stream(stream); stream.synchronize(); torch.cuda.synchronize(device); end.synchronize()
assert begin.elapsed_time(end) >= 0 and stream.query() and end.query() and x.sum().item() == 8
x.record_stream(torch.cuda.current_stream())
counters = (torch.cuda.memory_allocated, torch.cuda.max_memory_allocated, torch.cuda.memory_reserved)
before = torch.cuda.memory_allocated()
held = torch.ones(1 << 20, device="cuda")
for ask in counters:  # the cpu's memory is not counted
    assert ask() == ask("cuda:0") == 0 if target == "cpu" else ask() == ask("cuda:0") >= before + (4 << 20), ask
del held
assert torch.cuda.memory_allocated() == before
torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats(); assert isinstance(torch.cuda.memory_stats(), dict)
free, total = torch.cuda.mem_get_info(); assert 0 < free <= total
torch.cuda.manual_seed(5); a = torch.rand(3, device="cuda"); state = torch.cuda.get_rng_state()
b = torch.rand(3, device="cuda"); torch.cuda.set_rng_state(state); assert torch.equal(b, torch.rand(3, device="cuda"))
torch.cuda.manual_seed_all(5); assert torch.equal(a, torch.rand(3, device="cuda"))
torch.manual_seed(5); assert torch.cuda.initial_seed() == 5
g = torch.Generator(device="cuda"); g.manual_seed(1); there(torch.rand(2, device="cuda", generator=g)); assert isinstance(g, torch.Generator)
with torch.random.fork_rng(devices=[0], device_type="cuda"):
    torch.rand(2, device="cuda")
assert torch.get_device_module("cuda") is torch.cuda
# pinned memory, saving and loading
pinned = torch.ones(2).pin_memory(); assert pinned.is_pinned() == (target != "cpu"); there(pinned.to("cuda", non_blocking=True))
import io
file = io.BytesIO(); torch.save({"x": torch.ones(2, device="cuda")}, file)
for location in ("cuda", device, {"cuda:0": "cuda:0"}, None):
    file.seek(0); there(torch.load(file, map_location=location)["x"])
file.seek(0); assert real(torch.load(file, map_location="cpu")["x"]).type == "cpu"
# autocast
for made in (lambda: torch.autocast("cuda", dtype=torch.bfloat16), lambda: torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)):
    with made():
        assert torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
        assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype == torch.bfloat16
        assert torch.is_autocast_enabled() and torch.get_autocast_gpu_dtype() == torch.bfloat16
assert not torch.is_autocast_enabled("cuda") and not torch.is_autocast_enabled()
torch.set_autocast_enabled(True); assert torch.is_autocast_enabled("cuda"); torch.set_autocast_enabled(False)
assert not torch.is_autocast_enabled("cuda")
# torch.jit
@torch.jit.script
def scripted(x):
    if x.sum() > 0:
        x = x + torch.zeros(2, dtype=torch.float32)
    return x.relu()
assert scripted(torch.ones(2)).tolist() == [1, 1]
assert "aten::zeros" in str(scripted.graph)
# checkpointing asks for the device's random state
from torch.utils.checkpoint import checkpoint
x = torch.ones(2, device="cuda", requires_grad=True)
checkpoint(lambda t: torch.nn.functional.dropout(t.sin()), x, use_reentrant=False).sum().backward(); there(x.grad)
compiled = torch.compile(lambda t: t.sin() + torch.ones(2, device="cuda"), backend="aot_eager")
there(compiled(torch.ones(2, device="cuda")))
# the tools, on the same device
import os
os.environ["OP_TOOLS_DEVICE"] = target
import op_tools
tool = op_tools.OpObserve()
with tool:
    torch.ones(2, device="cuda").sin()
assert "aten::sin" in tool.counts()
