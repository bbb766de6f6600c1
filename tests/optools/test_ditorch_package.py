# SPDX-License-Identifier: Apache-2.0
"""import ditorch: CUDA scripts on the device that is there, at no cost to operators, reversibly.

Each test runs a program of its own: ditorch changes a process.
"""

import os
from pathlib import Path

import interpreter
import pytest
import torch
from optools_devices import DEVICES

ROOT = Path(__file__).resolve().parents[2]
TARGETS = [d for d in DEVICES if d != "cuda"]
SCRIPTS = ("cnn", "gpt", "amp", "loader")


@pytest.fixture(params=TARGETS)
def target(request):
    return request.param


def environment(target, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DITORCH_", "OP_"))}
    return {**kept, "DITORCH_DEVICE": target, "OMP_NUM_THREADS": "1", **more}


def run(target, program, *arguments, **variables):
    """In a file, in the test's folder: torch.jit.script reads a function's source."""
    Path("program.py").write_text(program)
    done = interpreter.run(
        ["program.py", *map(str, arguments)],
        env=environment(target, **variables),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS)
def test_cuda_scripts_run_unmodified(target, script):
    path = ROOT / "examples" / "cuda" / f"{script}.py"
    assert "ditorch" not in path.read_text()
    done = interpreter.run(
        ["-m", "ditorch", str(path)],
        env=environment(target),
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith(f"ditorch: {target} ")
    assert done.stdout.rstrip().endswith("PASSED")


def test_the_other_way_to_run_a_script(target):
    path = ROOT / "examples" / "cuda" / "cnn.py"
    text = run(
        target,
        "import torch, ditorch, runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')",
        path,
        "--epochs=2",
    )
    assert "PASSED" in text


NAMES = """
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
for ask in counters:  # nobody counts the cpu's memory
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
"""


def test_cuda_names_work(target):
    run(target, NAMES, target)


SHOWN = """
import threading, torch, ditorch
x = torch.ones(2, device="cuda")
def look():
    seen.append((str(x.device), x.device.type, x.is_cuda, "cuda" in repr(x), x.device == torch.device("cuda:0")))
seen = []
look()
thread = threading.Thread(target=look); thread.start(); thread.join()
assert seen[0] == seen[1]
assert str(torch.ones(2).device) == "cpu"
print(seen[0])
"""


def test_every_thread_sees_the_same_device(target):
    shown = run(target, SHOWN).splitlines()[-1]
    own = run(target, SHOWN, DITORCH_SHOW_DEVICE_AS_CUDA="0").splitlines()[-1]
    if target == "cpu":
        assert shown == own == "('cpu', 'cpu', False, False, False)"
    else:
        assert shown == "('cuda:0', 'cuda', True, True, True)"
        assert own == f"('{target}:0', '{target}', True, False, False)"


COST = """
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
"""


def test_operators_pay_nothing(target):
    """No mode, no hook, no other kernel, and the functions models call are PyTorch's own."""
    run(target, COST, target)


BACK = """
import sys, types
import torch
if sys.argv[1] == "npu":
    import torch_npu
import torch.distributed, torch.cuda.nvtx, torch._dynamo
def everything():
    owners = [torch, torch.cuda, torch.Tensor, torch.nn.Module, torch.cuda.memory, torch.cuda.random, torch.cuda.streams,
              torch.cuda.amp, torch.cuda.nvtx, torch.amp, torch.amp.autocast_mode, torch.amp.autocast_mode.autocast,
              torch.amp.GradScaler, torch.fft, torch.sparse, torch.signal.windows, torch.distributed,
              torch.distributed.distributed_c10d, torch.UntypedStorage, torch.TypedStorage, torch.serialization,
              torch.utils._device.DeviceContext, torch.nn.utils.rnn.PackedSequence, torch.random,
              torch.nn.parallel.DistributedDataParallel, torch.nn.parallel.data_parallel]
    return [dict(vars(o)) for o in owners], list(torch.serialization._package_registry)
torch.utils._device._device_constructors()
before = everything()
import ditorch
for _ in range(2):
    assert everything() != before
    torch.ones(2, device="cuda")
    ditorch.disable(); ditorch.disable()
    assert not ditorch.is_enabled()
    after = everything()
    for old, new in zip(before[0], after[0]):
        assert old.keys() - {"ditorch"} == new.keys() - {"ditorch"}, old.keys() ^ new.keys()
        for name in old:
            assert old[name] is new[name] or old[name] == new[name], name
    assert after[1] == before[1]
    assert torch.jit._builtins._find_builtin(torch.zeros) == "aten::zeros"
    if not torch.version.cuda:
        try:
            torch.ones(2, device="cuda")
            raise SystemExit("still enabled")
        except (AssertionError, RuntimeError):
            pass
    ditorch.enable(); ditorch.enable()
"""


def test_disable_puts_everything_back(target):
    run(target, BACK, target)


def test_mock_disabled(target):
    text = run(
        target,
        "import torch, ditorch; print(ditorch.is_enabled(), ditorch.device_type, torch.cuda.is_available())",
        DITORCH_DISABLE_MOCK="1",
    )
    assert text == f"False {target} {torch.cuda.is_available()}\n"


@pytest.mark.parametrize(
    "variable, value, said",
    [
        ("DITORCH_DISABLE_MOCK", "yes", "expected a whole number"),
        ("DITORCH_SHOW_DEVICE_AS_CUDA", "maybe", "expected 0 or 1"),
        ("DITORCH_DEVICE", "toaster", "no such device here; there are"),
        ("DITORCH_DEVICE", "nn", "no such device here; there are"),
        ("DITORCH_DEVICE", "npu:0", "expected the name of a device"),
        ("DITORCH_DEVICE", "os.path", "expected the name of a device"),
    ],
)
def test_malformed_variables_are_named(variable, value, said):
    target = TARGETS[-1]
    done = interpreter.run(
        ["-c", "import torch, ditorch"],
        env=environment(target, **{variable: value}),
    )
    assert done.returncode != 0 and variable in done.stderr and said in done.stderr


SPAWN = """
import torch
import torch.multiprocessing as mp

def work(index, shared):
    shared[index] = torch.ones(2, device="cuda").sum().cpu() + index

if __name__ == "__main__":
    shared = torch.zeros(2).share_memory_()
    mp.spawn(work, args=(shared,), nprocs=2)
    assert shared.tolist() == [2, 3], shared
    print("PASSED")
"""


def test_spawned_processes_are_enabled_too(target, tmp_path):
    script = tmp_path / "spawning.py"
    script.write_text(SPAWN)
    done = interpreter.run(
        ["-m", "ditorch", str(script)],
        env=environment(target),
        timeout=240,
        exact=True,  # spawn runs the main module again
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED" in done.stdout


def test_numbers_are_devices_too(target):
    run(
        target,
        """
import torch, ditorch
where = torch.ones(1).cuda().device
for made in (torch.ones(2, device=0), torch.ones(2).to(0), torch.ones(2).to(device=0), torch.ones(2).cuda(0),
             torch.ones(2).new_zeros(2, device=0), torch.nn.Linear(2, 2).to(0).weight):
    assert made.device == where, made.device
assert torch.ones(2).to(torch.float16).dtype == torch.float16
assert torch.ones(2).to(torch.ones(1).cuda()).device == where
torch._C._cuda_setDevice(0)
assert torch._C._cuda_getDevice() == torch.cuda.current_device() == 0
""",
    )


def test_data_parallel_is_its_module_where_batches_cannot_be_shared_out(target):
    run(
        target,
        """
import torch, ditorch
model = torch.nn.Linear(2, 3).cuda()
both = torch.nn.DataParallel(model, device_ids=[0])
x = torch.ones(4, 2).cuda()
assert torch.equal(both(x), model(x))
both(x).sum().backward()
assert model.weight.grad.device == x.device
""",
    )


def test_a_pytorch_built_with_cuda_without_a_gpu():
    """It names cuda as its accelerator; torch.compile goes by that."""
    run(
        "cpu",
        """
import torch
torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
import ditorch
assert torch.cuda.is_available() and not torch.accelerator.is_available()
assert torch.accelerator.device_count() == 0
assert torch.compile(lambda x: x.sin(), backend="eager")(torch.ones(2)).sum() > 0
ditorch.disable()
assert torch.accelerator.current_accelerator() == torch.device("cuda")
""",
    )


def test_profiling_cuda_asks_it_for_nothing(target):
    done = run(
        target,
        """
import sys; sys.stderr = sys.stdout
import os; os.dup2(1, 2)
import torch, ditorch
from torch.profiler import ProfilerActivity, profile, record_function
for activities in ([ProfilerActivity.CUDA], [ProfilerActivity.CPU, ProfilerActivity.CUDA]):
    with profile(activities=activities, record_shapes=True) as found, record_function("mine"):
        torch.ones(4, device="cuda").sin()
names = {event.key for event in found.key_averages()}
assert {"mine", "aten::sin"} <= names, names
with torch.autograd.profiler.profile(use_cuda=True) as found:
    torch.ones(4, device="cuda").sin()
assert "aten::sin" in found.key_averages().table(sort_by="cpu_time_total")
""",
    )
    # A PyTorch with CUDA built in and no GPU notes by itself that its profiler finds none.
    assert not [line for line in done.splitlines() if "CUDA" in line and "INFO:" not in line]


def test_helpers_of_ditorch(target):
    run(
        target,
        """
import torch, ditorch
from ditorch import utils
p = torch.nn.Parameter(torch.ones(2, device="cuda"))
utils.div_inp(p, 2); assert p.tolist() == [0.5, 0.5]
utils.copy_inp(p, torch.zeros(2, device="cuda")); assert p.tolist() == [0, 0]
try:
    utils.tensor_op_inp(p, "add", 1); raise SystemExit(1)
except AssertionError: pass
@utils.is_to_fp32_tensor(True)
def double(x, many):
    assert x.dtype == many["y"][0].dtype == torch.float32
    x.mul_(2); many["y"][0].add_(1)
x, y = torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.bfloat16)
double(x, {"y": [y]}); assert x.tolist() == y.tolist() == [2, 2]
import collections
Pair = collections.namedtuple("Pair", "a b")
wide, dtypes = utils.to_fp32_if_tensor([Pair(x, 1), torch.max(y.view(1, 2), 1), (y,)])
assert wide[0].a.dtype == wide[1].values.dtype == wide[2][0].dtype == torch.float32
assert dtypes[0] == Pair(torch.float16, None) and dtypes[2] == (torch.bfloat16,)
""",
    )


def test_an_empty_variable_is_one_not_set(target):
    """Also for the device: an empty name asks for nothing."""
    said = run(
        target,
        """
import torch, ditorch
print("shown as", torch.ones(1, device="cuda").device.type)
""",
        DITORCH_SHOW_DEVICE_AS_CUDA="",
        DITORCH_DISABLE_MOCK="",
    )
    assert f"shown as {'cpu' if target == 'cpu' else 'cuda'}" in said


def test_no_script_and_a_missing_one():
    for arguments, rc, said in (([], 2, "ditorch script.py"), (["nowhere.py"], 1, "nowhere.py")):
        done = interpreter.run(
            ["-m", "ditorch", *arguments],
            env=environment("cpu"),
        )
        assert done.returncode == rc and said in done.stdout + done.stderr
