# SPDX-License-Identifier: Apache-2.0
"""A device as vendors have them: memory that host code cannot touch, asynchronous streams, two devices,
few kernels (tests/drivers/discrete). Its `run` refuses calls outside its caps, its memory any stray access."""

import os
import subprocess
import sys

import pytest
from faulty import ROOT, built_driver
from programs import names, program, variables

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
# Views, numbers, in-place and out= forms, reductions, indices, products, random numbers, lists.
SAMPLE = (
    "add mul sub div where clamp sum mean var std cat stack gather scatter index_select take "
    "index_put masked_fill masked_select nonzero sort topk cumsum matmul mm bmm addmm baddbmm addmv einsum "
    "softmax nn.functional.conv2d nn.functional.layer_norm nn.functional.linear transpose as_strided "
    "isclose quantile unique roll tril copysign"
).split()

HEAD = """
import sys, torch, torch_npu
sys.path.insert(0, {root!r})
from benchmarks.models import build
"""
CURVES = """
def curve(name, device):
    torch.manual_seed(0)
    step = build(name).to(device)
    return torch.tensor([float(step()) for _ in range(3)])
for name in NAMES:
    npu, cpu = curve(name, "npu:1"), curve(name, "cpu")
    assert npu[-1] < npu[0], (name, npu)
    torch.testing.assert_close(npu, cpu, rtol=2e-4, atol=0)
"""


@pytest.fixture
def discrete(run_python):
    """Runs code on the driver, with work that ends late."""

    def run(code, **env):
        variables = {"NPU_FALLBACK": "silent", "NPU_DISCRETE_DELAY_US": "20", **env}
        head = HEAD.format(root=str(ROOT))
        return run_python(head + code, NPU_DRIVER=built_driver("discrete"), **variables)

    return run


def test_it_is_under_700_lines_of_code():
    optional = (
        "optional", "profiler", "capture", "comm", "comm_queue", "comm_values", "channels",
        "host_kernels",
    )  # fmt: skip
    files = [f for f in (ROOT / "tests/drivers/discrete").iterdir() if f.stem not in optional]
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    assert sum(bool(line) and not line.startswith("//") for line in lines) < 700


@pytest.mark.parametrize("names", [["gpt-tiny"], ["lstm", "resnet-narrow"]], ids=str)
def test_models_train_as_on_the_cpu(discrete, names):
    discrete(CURVES.replace("NAMES", repr(names)), NPU_DISCRETE_DELAY_US="0")


def test_host_workspace_lives_until_the_stream_passes(discrete):
    discrete("""
a, b = torch.randn(64, 32), torch.randn(32, 48)
x, y = a.npu(), b.npu()
got = [(x + i) @ y for i in range(20)]
for i, z in enumerate(got):
    torch.testing.assert_close(z.cpu(), (a + i) @ b, rtol=1e-4, atol=1e-4)
""")


def test_numbers_and_one_element(discrete):
    discrete("""
one = torch.tensor(1.5, device="npu")
assert (one + 2.0).item() == 3.5 and (2 + one).item() == 3.5
assert (torch.tensor(2.0) + one).item() == 3.5
x = torch.arange(4.0, device="npu")
assert (x[1:2] + 2).tolist() == [3.0] and (x[1] + x[3]).item() == 4
""")


def test_outputs_that_no_copy_can_cast_back(discrete):
    """It fills float32 and copies without casting: other dtypes are left to the CPU."""
    discrete("""
for dtype in (torch.float16, torch.bfloat16, torch.int32, torch.complex64):
    x = torch.zeros(6, 4, dtype=dtype, device="npu")
    x[::2, 1:2].fill_(2)
    x[1::2, 2:] = 3
    expected = torch.zeros(6, 4, dtype=dtype)
    expected[::2, 1:2], expected[1::2, 2:] = 2, 3
    assert torch.equal(x.cpu(), expected), dtype
""")


@pytest.mark.parametrize("name", names(__file__))
def test_program(discrete, name):
    discrete(program(__file__, name), **variables(__file__, name))


def test_host_code_cannot_touch_its_memory(run_python):
    code = "import ctypes, torch, torch_npu\nx = torch.ones(4, device='npu')\n"
    done = run_python(
        code + "ctypes.string_at(x.data_ptr(), 4)", check=False, NPU_DRIVER=built_driver("discrete")
    )
    assert done.returncode == -11, done


@pytest.mark.slow
def test_operators_answer_what_the_cpu_answers():
    """A sample; `make test-full` runs the whole database."""
    command = [sys.executable, str(ROOT / "tests/opinfo/sweep.py"), "--kernels", "all", "--quick"]
    command += ["--workers", "2"]
    if not FULL:
        command += ["--dtype", "float32", "--mode", "forward", "--mode", "inplace", "--mode", "out"]
        command += [word for name in SAMPLE for word in ("--op", name)]
    env = {**os.environ, "NPU_DRIVER": built_driver("discrete")}
    run = subprocess.run(command, capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]


COMPOSED = program(__file__, "_composed")


def test_operators_without_a_kind_are_composed(discrete):
    discrete(COMPOSED, NPU_DISCRETE_DELAY_US="50")


def test_what_they_are_composed_of_needs_no_cpu(run_python):
    """With every kind, in memory that the host cannot read: NPU_FALLBACK=error would raise."""
    run_python(
        COMPOSED,
        NPU_HOST_ACCESS="none", NPU_HOST_KERNELS="all", NPU_PROFILE="none", NPU_FALLBACK="error",
    )  # fmt: skip
