# SPDX-License-Identifier: Apache-2.0
"""Every node with a body: exported on npu by both exporters, run in a stock onnxruntime, compared."""

import io

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch_npu
from onnx_cases import CASES, DYNAMO_CASES, Calls, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore")


def run(model: onnx.ModelProto, tensors):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [i.name for i in session.get_inputs()]
    assert len(names) == len(tensors)
    return session.run(None, {n: t.cpu().numpy() for n, t in zip(names, tensors)})


def compare(found, wanted):
    assert len(found) == len(wanted)
    for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
        want = want.cpu().numpy()
        assert got.dtype == want.dtype and got.shape == want.shape, f"output {i}"
        tolerance = 2e-3 if want.dtype == np.float16 else 2e-6
        if want.dtype == np.int8:  # a number halfway between two may round either way
            assert np.abs(got.astype(int) - want).max() <= 1, f"output {i}"
        else:
            np.testing.assert_allclose(
                got, want, rtol=tolerance, atol=tolerance, err_msg=f"output {i}"
            )


def npu_nodes(model):
    return [n.op_type for n in model.graph.node if n.domain == "npu"]


def torchscript(module, tensors, **options):
    file = io.BytesIO()
    torch.onnx.export(module, tensors, file, dynamo=False, **options)
    model = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_torchscript(case):
    module, tensors = Calls([case]), tensors_of([case])
    model = torchscript(module, tensors)
    (name,) = npu_nodes(model)
    assert [f.name for f in model.functions] == [name], "the node has a body"
    compare(run(model, tensors), module(*tensors))


def test_dynamo():
    """All of them in one model: an export costs seconds."""
    cases = CASES + DYNAMO_CASES
    module, tensors = Calls(cases), tensors_of(cases)
    program = torch_npu.onnx.export(module, tensors, verbose=False)
    model = program.model_proto
    nodes = npu_nodes(model)
    assert len(nodes) == len(cases)
    assert {f.name for f in model.functions} == set(nodes)
    compare(run(model, tensors), module(*tensors))


def test_half_precision():
    cases = [(n, tuple(t.half() if t.is_floating_point() else t for t in ts), k)
             for n, ts, k in CASES if n in ("npu_rms_norm", "npu_swiglu", "npu_rotary_mul")]  # fmt: skip
    module, tensors = Calls(cases), tensors_of(cases)
    compare(run(torchscript(module, tensors), tensors), module(*tensors))


def test_sizes_are_not_in_the_body():
    """The same file serves other sizes."""

    class Norm(torch.nn.Module):
        def forward(self, x, gamma):
            return torch_npu.npu_swiglu(torch_npu.npu_rms_norm(x, gamma)[0])

    gamma = torch.rand(8).npu()
    model = torchscript(
        Norm(), (torch.rand(2, 8).npu(), gamma), input_names=["x", "gamma"],
        dynamic_axes={"x": {0: "rows"}},
    )  # fmt: skip
    x = torch.rand(5, 8).npu()
    compare(run(model, (x, gamma)), (Norm()(x, gamma),))


def test_calls_with_other_attributes_and_ranks_share_a_body():
    """Why bodies are written by hand: a traced composition has attributes and ranks as constants, so that each call
    would need a function of another name, and importers know a node by its name."""

    class Norms(torch.nn.Module):
        def forward(self, x, gamma, table):
            return (
                torch_npu.npu_rms_norm(x, gamma, 1e-6)[0],
                torch_npu.npu_rms_norm(x, gamma, 0.5)[0],
                torch_npu.npu_rms_norm(x, table, 0.25)[0],
                torch_npu.npu_swiglu(x, 1),
                torch_npu.npu_swiglu(x, -1),
            )

    tensors = tuple(torch.rand(*size).npu() for size in ((2, 4, 8), (8,), (4, 8)))
    model = torchscript(Norms(), tensors)
    assert npu_nodes(model) == ["NPURmsNorm"] * 3 + ["NPUSwiglu"] * 2
    assert sorted(f.name for f in model.functions) == ["NPURmsNorm", "NPUSwiglu"]
    compare(run(model, tensors), Norms()(*tensors))


def test_at_least_25_operators():
    assert len({name for name, _, _ in CASES}) >= 25


def test_arguments_without_a_body_make_a_plain_node():
    case = ("npu_layer_norm_eval", (torch.rand(2, 4),), {"normalized_shape": [4], "eps": 1e-3})
    model = torchscript(Calls([case]), tensors_of([case]))
    (node,) = model.graph.node
    assert (node.domain, node.op_type) == ("npu", "NPULayerNormEval") and not model.functions
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    assert attributes["normalized_shape"] == [4] and abs(attributes["eps"] - 1e-3) < 1e-9


def test_opsets_before_18_have_nodes_only():
    case = CASES[0]
    model = torchscript(Calls([case]), tensors_of([case]), opset_version=11)
    assert npu_nodes(model) == ["NPURmsNorm"] and not model.functions
