# SPDX-License-Identifier: Apache-2.0
"""Right entries become the model that emitters read."""

import pytest
from aten_model import Source
from torchgen.model import SchemaKind


def one(load, text):
    (operator,) = load("supported:\n" + text).operators
    return operator


def named(operands, sources):
    return {o.name: s for o, s in zip(operands, sources) if not s.absent}


def test_plain_name_is_one_overload(load):
    operator = one(load, "  - erfinv.out\n")
    assert [str(f.func.name) for f in operator.functions] == ["erfinv.out"]
    assert operator.mapping is None and not operator.impl
    assert str(operator.where) == "pack0.yaml:4"


def test_kind_takes_the_whole_group(load):
    for name in ("erfinv", "erfinv_", "erfinv.out"):
        operator = one(load, f"  - func: {name}\n    kind: unary\n")
        assert [str(f.func.name) for f in operator.functions] == ["erfinv.out", "erfinv", "erfinv_"]
        assert operator.structured
        assert operator.mapping.code == "erfinv"
        assert str(operator.form(SchemaKind.inplace).func.name) == "erfinv_"


def test_impl_takes_the_whole_group(load):
    operator = one(
        load, "  - func: amax.out\n    kind: reduce\n    code: max\n    impl: amax_out\n"
    )
    assert [str(f.func.name) for f in operator.functions] == ["amax.out", "amax"]
    assert operator.impl == "amax_out" and operator.mapping is None
    assert operator.kind.name == "reduce" and operator.code == "max"


def test_kinds_that_hand_written_code_uses(load):
    operator = one(load, "  - func: cat.out\n    uses: [cat, copy]\n")
    assert [kind.name for kind in operator.uses] == ["cat", "copy"]


@pytest.mark.parametrize(
    ("entry", "code", "ins", "attrs"),
    [
        ("add.out\n    kind: binary\n    attrs: {a: alpha}", "add",
         {"in": "self", "other": "other"}, {"a": "alpha"}),
        ("eq.Scalar_out\n    kind: compare", "eq", {"in": "self", "other": "other"}, {}),
        ("pow.Scalar_out\n    kind: unary_with\n    code: rpow\n    attrs: {a: self}", "rpow",
         {"in": "exponent"}, {"a": "self"}),
        ("pow.Scalar_out\n    kind: binary", "pow", {"in": "self", "other": "exponent"}, {}),
        ("sigmoid_backward.grad_input\n    kind: binary", "sigmoid_grad",
         {"in": "grad_output", "other": "output"}, {}),
        ("special_erfcx.out\n    kind: unary", "erfcx", {"in": "self"}, {}),
        ("clamp.out\n    kind: unary_with\n    attrs: {a: min, b: max}", "clamp",
         {"in": "self"}, {"a": "min", "b": "max"}),
        ("cumsum.out\n    kind: scan\n    ignore: [dtype]", "cumsum",
         {"in": "self"}, {"dim": "dim"}),
        ("where.self\n    kind: ternary\n    operands: {y: other, z: self}", "where",
         {"x": "condition", "y": "other", "z": "self"}, {}),
    ],
)  # fmt: skip
def test_arguments_find_their_place(entry, code, ins, attrs, load):
    mapping = one(load, f"  - func: {entry}\n").mapping
    assert mapping.code == code
    expected = {name: Source(argument=argument) for name, argument in ins.items()}
    assert named(mapping.kind.ins, mapping.ins) == expected
    expected = {name: Source(argument=argument) for name, argument in attrs.items()}
    assert named(mapping.kind.attrs, mapping.attrs) == expected
    assert mapping.outs[0] == Source(result=0)


def test_code_chosen_by_an_argument(load):
    mapping = one(
        load,
        "  - func: div.out_mode\n    kind: binary\n"
        "    code: {rounding_mode: {~: div, trunc: div_trunc, floor: div_floor}}\n",
    ).mapping
    assert mapping.chosen_by == "rounding_mode" and mapping.code == ""
    assert mapping.codes == ((None, "div"), ("trunc", "div_trunc"), ("floor", "div_floor"))
    assert mapping.all_codes == ("div", "div_trunc", "div_floor")


def test_two_results_and_constants(load):
    mapping = one(
        load,
        "  - func: sort.values_stable\n    kind: sort\n    operands: {indices: indices, values: values}\n"
        "    attrs: {stable: true}\n    ignore: [stable]\n",
    ).mapping
    assert mapping.outs == (Source(result=0), Source(result=1))
    attrs = named(mapping.kind.attrs, mapping.attrs)
    assert attrs["stable"] == Source(constant=True)
    assert attrs["descending"] == Source(argument="descending")


def test_lists(load):
    mapping = one(load, "  - func: cat.out\n    kind: cat\n").mapping
    assert mapping.lists == (Source(argument="tensors"),)
    assert named(mapping.kind.attrs, mapping.attrs) == {"dim": Source(argument="dim")}


def test_sections(load):
    pack = load(
        "supported:\n  - add.Tensor\nautograd:\n  - relu6\n"
        "custom:\n  - func: npu_x(Tensor self) -> Tensor\n"
        "custom_autograd:\n  - func: npu::npu_y(Tensor self) -> Tensor\n"
    )
    assert [(o.name, o.section, o.custom, o.autograd) for o in pack.operators] == [
        ("add.Tensor", "supported", False, False),
        ("relu6", "autograd", False, True),
        ("npu_x", "custom", True, False),
        ("npu_y", "custom_autograd", True, True),
    ]


def test_empty_sections(load):
    assert load("supported:\nautograd: []\n").operators == ()


def test_whole_schema_of_torch_is_accepted(load):
    operator = one(load, "  - func: relu(Tensor self) -> Tensor\n")
    assert operator.name == "relu"
