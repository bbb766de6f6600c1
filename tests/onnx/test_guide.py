# SPDX-License-Identifier: Apache-2.0
"""The three ways of the API guide's appendix; two models; torch_npu.onnx's names; bad input."""

import io
import math

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch_npu
from torch import nn
from torch.nn.parameter import Parameter
from torch.onnx import register_custom_op_symbolic
from torch.onnx.symbolic_helper import parse_args

pytestmark = pytest.mark.filterwarnings("ignore")


def exported(model, inputs, **options):
    file = io.BytesIO()
    torch_npu.onnx._export(model, inputs, file, **options)
    return onnx.load_from_string(file.getvalue())


def kinds(model):
    return [f"{n.domain}::{n.op_type}" for n in model.graph.node]


def attributes(node):
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


FEATURES = torch.rand(1, 3, 8, 8)
ROIS = [[0.0, 1.0, 1.0, 6.0, 6.0], [0.0, 0.0, 2.0, 4.0, 7.0]]


def roi_symbolic(g, input, rois, spatial_scale, pooled_height, pooled_width, sample_num, mode):
    return g.op(
        "torch::npu_roi_align", input, rois, spatial_scale_f=spatial_scale,
        pooled_height_i=pooled_height, pooled_width_i=pooled_width, sample_num_i=sample_num,
        roi_end_mode_i=mode,
    )  # fmt: skip


class RoiModel(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call
        self.weight = Parameter(torch.tensor(ROIS))

    def forward(self, a):
        return self.call(a, self.weight, 0.5, 2, 2, 2, 0)


class NumbersModel(RoiModel):
    """The guide's first model: numbers come out of a tensor, an input is not used."""

    def forward(self, a, b, d):
        numbers = d[0].item(), *(int(d[i].item()) for i in range(1, 5))
        return self.call(a, self.weight, *numbers)


def check_roi(model, weight="weight"):
    (node,) = [n for n in model.graph.node if n.op_type == "npu_roi_align"]
    assert node.domain == "torch" and list(node.input)[1:] == [weight]
    assert [i.name for i in model.graph.initializer] == [weight]
    assert attributes(node) == {
        "spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 2, "sample_num": 2, "roi_end_mode": 0,
    }  # fmt: skip
    assert model.opset_import[0].version == 11


def test_operator_by_registered_symbolic():
    """TBE operator, way one: symbolic_registry.register_op."""
    registry = torch_npu.onnx.symbolic_registry
    assert torch_npu.npu_roi_align  # an operator has its symbolic from the first time it is named
    before = registry.get_registered_op("npu_roi_align", "npu", 11)
    registry.register_op(
        "npu_roi_align", parse_args("v", "v", "f", "i", "i", "i", "i")(roi_symbolic), "", 11
    )
    try:
        assert registry.is_registered_op("npu_roi_align", "", 11)
        model = NumbersModel(torch_npu.npu_roi_align).npu().eval()
        d = torch.tensor([0.5, 2.0, 2.0, 2.0, 0.0]).npu()
        file = exported(
            model, (FEATURES.npu(), FEATURES.npu(), d), verbose=True, export_params=True,
            do_constant_folding=True, input_names=["intput", "", "", "npu_roi_align.weight"], opset_version=11,
        )  # fmt: skip
        check_roi(file, "npu_roi_align.weight")
        assert file.graph.input[0].name == "intput"
    finally:
        registry.register_op("npu_roi_align", before, "npu", 11)
    with pytest.raises(RuntimeError, match="no symbolic of npu::npu_nothing for opset 11"):
        registry.get_registered_op("npu_nothing", "npu", 11)


class RoiFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *args):
        return torch_npu.npu_roi_align(*args)

    symbolic = staticmethod(roi_symbolic)


def test_operator_by_function_with_symbolic():
    """TBE operator, way two."""
    model = RoiModel(RoiFunction.apply).npu().eval()
    check_roi(exported(model, (FEATURES.npu(),), opset_version=11))


@pytest.fixture(scope="module")
def custom_add():
    """custom_namespace::custom_add. The guide compiles it with load_inline; tests/seeds does that too."""
    library = torch.library.Library("custom_onnx", "DEF")
    library.define("custom_add(Tensor self, Tensor other) -> Tensor")
    library.impl("custom_add", lambda a, b: a + b, "CompositeExplicitAutograd")
    library.impl("custom_add", lambda a, b: torch.empty_like(a), "Meta")
    yield torch.ops.custom_onnx.custom_add
    library._destroy()


class Pair(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, a, b):
        return self.call(a, b)


def test_custom_operator_of_cpp(custom_add):
    register_custom_op_symbolic(
        "custom_onnx::custom_add", lambda g, a, b: g.op("custom_namespace::custom_add", a, b), 9
    )
    x, y = torch.randn(2, 3, 4).npu(), torch.randn(2, 3, 4).npu()
    model = exported(Pair(custom_add), (x, y), opset_version=11)
    assert kinds(model) == ["custom_namespace::custom_add"]
    onnx.checker.check_model(model)
    with pytest.raises(Exception, match="custom_add"):  # there is no kernel for it
        onnxruntime.InferenceSession(model.SerializeToString())


def test_custom_operator_through_dynamo(custom_add):
    """The same operator by custom_translation_table, in operators that onnxruntime has."""
    from onnxscript import opset18 as op

    x, y = torch.randn(2, 3).npu(), torch.randn(2, 3).npu()
    program = torch_npu.onnx.export(
        Pair(custom_add), (x, y), verbose=False,
        custom_translation_table={custom_add.default: lambda a, b: op.Add(a, b)},
    )  # fmt: skip
    assert kinds(program.model_proto) == ["::Add"]
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    (found,) = session.run(None, dict(zip(names, (x.cpu().numpy(), y.cpu().numpy()))))
    np.testing.assert_array_equal(found, (x + y).cpu().numpy())


class AddFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input1, input2):
        return torch.add(input1, torch.add(input1, input2))

    @staticmethod
    def symbolic(g, input1, input2):
        rtn = g.op("Custom::CustomClassOp_Add", input1, input2, test_attr1_i=1, test_attr2_f=1.0)
        rtn = g.op("ATen::CustomClassOp_Add", input1, rtn)
        return g.op("C10::CustomClassOp_Add", rtn, input2)


class CustomClassOp_Add(nn.Module):
    def __init__(self):
        super().__init__()
        self.add = AddFunction.apply
        self.weight = Parameter(torch.empty(8, 10, 16))
        self.weight1 = torch.empty(8, 10, 16, device="npu")
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.kaiming_uniform_(self.weight1, a=math.sqrt(5))

    def forward(self, input):
        rtn = self.add(self.weight, torch.add(self.weight1, self.weight))
        rtn1 = self.add(self.weight1, self.add(self.weight, self.weight1))
        return self.add(rtn, rtn1)


def test_pure_python_function():
    model = exported(
        CustomClassOp_Add().npu().eval(), (torch.randn(1, 8, 10, 16).npu(),),
        keep_initializers_as_inputs=True, opset_version=11,
    )  # fmt: skip
    found = kinds(model)
    assert [found.count(f"{d}::CustomClassOp_Add") for d in ("Custom", "ATen", "C10")] == [4, 4, 4]
    first = next(n for n in model.graph.node if n.domain == "Custom")
    assert attributes(first) == {"test_attr1": 1, "test_attr2": 1.0}
    assert {"weight"} <= {i.name for i in model.graph.input}


# ---- models ------------------------------------------------------------------


class Block(nn.Module):
    """A decoder layer as programs for Ascend write it."""

    def __init__(self, size=16, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(2 * size, size)
        self.gamma1, self.gamma2 = Parameter(torch.rand(size)), Parameter(torch.rand(size))

    def forward(self, x, cos, sin):
        h = torch_npu.npu_rms_norm(x, self.gamma1)[0]
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in self.qkv(h).chunk(3, -1))
        q, k = torch_npu.npu_rotary_mul(q, cos, sin), torch_npu.npu_rotary_mul(k, cos, sin)
        a = torch_npu.npu_fusion_attention(q, k, v, self.heads, "BSND", scale=0.35)[0]
        y, _, x = torch_npu.npu_add_rms_norm(x, self.out(a.flatten(-2)), self.gamma2)
        return x + self.down(torch_npu.npu_swiglu(self.up(y)))


class Detector(nn.Module):
    """Convolutions, then boxes decoded from anchors and compared with given ones."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
        self.weight, self.bias = Parameter(torch.rand(8)), Parameter(torch.rand(8))

    def forward(self, image, anchors, truth):
        h, _, _ = torch_npu.npu_group_norm_silu(self.conv(image), self.weight, self.bias, 2)
        deltas = torch_npu.npu_transpose(self.head(torch_npu.npu_mish(h)), [0, 2, 3, 1])
        boxes = torch_npu.npu_bounding_box_decode(
            anchors, deltas.reshape(-1, 4), 0.0, 0.0, 0.0, 0.0, 0.1, 0.1, 0.2, 0.2, [4, 4], 0.016
        )
        return boxes, torch_npu.npu_iou(boxes, truth)


def corners(n):
    low = torch.rand(n, 2) * 2
    return torch.cat((low, low + 1 + torch.rand(n, 2)), 1)


MODELS = {
    "decoder": (Block, lambda: (torch.rand(2, 5, 16), torch.rand(1, 5, 1, 8), torch.rand(1, 5, 1, 8))),
    "detector": (Detector, lambda: (torch.rand(1, 3, 4, 4), corners(16), corners(3))),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_model(name, tmp_path):
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    model, inputs = make().npu().eval(), tuple(x.npu() for x in inputs())
    file = tmp_path / f"{name}.onnx"
    with torch.no_grad():
        torch_npu.onnx.export(model, inputs, str(file), verbose=False)
        wanted = model(*inputs)
    loaded = onnx.load(str(file))
    assert sum(n.domain == "npu" for n in loaded.graph.node) >= 4
    session = onnxruntime.InferenceSession(str(file))
    names = [i.name for i in session.get_inputs()]
    found = session.run(None, {n: x.cpu().numpy() for n, x in zip(names, inputs)})
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want.cpu().numpy(), rtol=1e-5, atol=1e-5)


def test_nothing_of_torch_is_patched():
    assert not hasattr(torch.onnx, "_export") and not hasattr(torch.onnx, "symbolic_registry")
    assert torch.onnx.export.__module__ == "torch.onnx"


def test_missing_dependency_says_what_to_install(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name)
    )
    with pytest.raises(
        ModuleNotFoundError, match=r"needs onnxscript: pip install 'opennpu\[onnx\]'"
    ):
        torch_npu.onnx.export(nn.Identity(), (torch.rand(1),))
