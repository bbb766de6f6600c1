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
from programs import program

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


NAMES = program(__file__, "_names")


def test_cuda_names_work(target):
    run(target, NAMES, target)


SHOWN = program(__file__, "_shown")


def test_every_thread_sees_the_same_device(target):
    shown = run(target, SHOWN).splitlines()[-1]
    own = run(target, SHOWN, DITORCH_SHOW_DEVICE_AS_CUDA="0").splitlines()[-1]
    if target == "cpu":
        assert shown == own == "('cpu', 'cpu', False, False, False)"
    else:
        assert shown == "('cuda:0', 'cuda', True, True, True)"
        assert own == f"('{target}:0', '{target}', True, False, False)"


COST = program(__file__, "_cost")


def test_operators_pay_nothing(target):
    """No mode, no hook, no other kernel, and the functions models call are PyTorch's own."""
    run(target, COST, target)


BACK = program(__file__, "_back")


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


@pytest.mark.parametrize(
    "variable, value", [("DITORCH_DEVICE", "toaster"), ("DITORCH_DISABLE_MOCK", "yes")]
)
def test_malformed_variables_are_one_line_of_the_command(tmp_path, variable, value):
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    done = interpreter.run(
        ["-m", "ditorch", str(script)],
        env=environment(TARGETS[-1], **{variable: value}),
        exact=True,  # argv as the command line gives it
    )
    said = done.stderr.strip().splitlines()
    assert done.returncode == 2 and "ran" not in done.stdout, done.stdout + done.stderr
    assert len(said) == 1 and said[0].startswith(f"ditorch: {variable}={value!r}: "), done.stderr


SPAWN = program(__file__, "_spawn")


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
