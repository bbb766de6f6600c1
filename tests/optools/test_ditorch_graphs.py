# SPDX-License-Identifier: Apache-2.0
"""import ditorch with CUDA graphs, torch.compile and checkpoints: tensors say cuda to the script, and the
plugin and PyTorch's compiler must know where they are.

Each test runs a program of its own: ditorch changes a process.
"""

import pytest
from programs import program
from test_ditorch_package import run

SHOWN = pytest.mark.parametrize("shown", ["0", "1"])

GRAPHS = program(__file__, "_graphs")


@SHOWN
def test_cuda_graphs_replay(shown):
    run("npu", GRAPHS, DITORCH_SHOW_DEVICE_AS_CUDA=shown)


COMPILE = program(__file__, "_compile")


@pytest.mark.parametrize(
    "backend, shown",
    [("inductor", "0"), ("inductor", "1"), ("npu", "1"), ("aot_eager", "1")],
)
def test_compiled_models(backend, shown):
    run("npu", COMPILE, backend, DITORCH_SHOW_DEVICE_AS_CUDA=shown)


def test_inductor_where_the_target_is_the_cpu():
    run("cpu", COMPILE, "inductor")


# The idiom of the DDP tutorial, and the functions that PyTorch takes in its place.
CHECKPOINT = """
import io, torch, {module}
def loaded(location, value=None):
    file = io.BytesIO()
    torch.save(torch.ones(2, device="cuda:0") if value is None else value, file)
    file.seek(0)
    return torch.load(file, map_location=location)
for location in ({{"cuda:0": "cuda:1"}}, "cuda:1", torch.device("cuda:1"),
                 lambda storage, place: storage.cuda(1)):
    assert loaded(location).get_device() == 1, location
assert loaded({{"cuda:1": "cuda:0"}}, torch.ones(2, device="cuda:1")).get_device() == 0
assert loaded({{"cuda:0": "cpu"}}).get_device() == -1
assert loaded({{"cuda:1": "cpu"}}).get_device() == 0
seen = []
loaded(lambda storage, place: seen.append(place))
assert seen == [{shown!r}], seen
file = io.BytesIO()
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), file)
file.seek(0)
assert torch.jit.load(file, map_location="cuda:1").weight.get_device() == 1
"""


@pytest.mark.parametrize(
    "module, shown, told",
    [
        ("ditorch", "1", "cuda:0"),
        ("ditorch", "0", "npu:0"),
        ("torch_npu.contrib.transfer_to_npu", "1", "npu:0"),
    ],
)
def test_checkpoints_move_to_another_device(module, shown, told):
    run(
        "npu", CHECKPOINT.format(module=module, shown=told),
        NPU_HOST_DEVICES="2", DITORCH_SHOW_DEVICE_AS_CUDA=shown,
    )  # fmt: skip
