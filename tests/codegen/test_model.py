# SPDX-License-Identifier: Apache-2.0
"""Right entries become the model that emitters read."""

import aten_call
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


def test_attempt_takes_the_overload_and_what_the_cpu_has(load):
    text = "  - func: {}\n    kind: ternary\n    code: where\n    attempt: f\n"
    operator = one(load, text.format("masked_fill_.Scalar"))
    assert [str(f.func.name) for f in operator.functions] == ["masked_fill_.Scalar"]
    operator = one(load, "  - func: frexp.Tensor\n    kind: unary\n    attempt: f\n")
    assert [str(f.func.name) for f in operator.functions] == ["frexp.Tensor_out", "frexp.Tensor"]
    assert operator.attempt == "f" and operator.mapping is None and not operator.impl


def test_options_of_an_entry(load):
    options = one(
        load,
        "  - func: put_\n    kind: put\n    attempt: put\n"
        "    code: {accumulate: {false: set, true: accumulate}}\n"
        "    with: {spatial: 2, exact: true}\n    wants: [self, index]\n"
        "    check: {dtype: {is_long: index, fits: [self, index]}, size: {is_off: accumulate}}\n"
        "    otherwise: cpu\n",
    ).options
    assert options.constants == (("spatial", 2), ("exact", True))
    assert options.wants == ("self", "index") and not options.composite
    texts = [(reason, [p.text for p in listed]) for reason, listed in options.checks]
    assert texts == [
        ("dtype", ["ops::is_long(index)", "ops::fits(self, index)"]),
        ("size", ["ops::is_off(accumulate)"]),
    ]
    assert [p.name for p in options.predicates if not p.shared] == ["fits"]


def test_what_a_function_is_called_with(load, torch_ops):
    operator = one(
        load,
        "  - func: native_batch_norm\n    kind: batch_norm_stats\n    code: batch\n    attempt: f\n"
        "    forms: named\n    sites: {apply: batch_norm_apply.rstd}\n"
        "    arguments: [weight, input, ~, true, 2, 0.5, eps]\n",
    )
    assert [str(f.func.name) for f in operator.functions] == ["native_batch_norm"]
    adapter = aten_call.adapter(operator, operator.functions[0], torch_ops)
    call = "f(site, apply, outputs, or_undefined(weight), input, at::Tensor(), true, 2, 0.5, eps);"
    assert call in adapter.text() and "NPU_BATCH_NORM_APPLY_RSTD" in adapter.text()
    tensor = "const at::Tensor &"
    types = f"{tensor}, {tensor}, {tensor}, bool, std::int64_t, double, double"
    sites = "npu::NativeSite& site, npu::NativeSite& apply, npu::Outputs& outputs"
    assert aten_call.declaration(operator, torch_ops) == f"npu_reason f({sites}, {types});"


def test_codes_beside_a_function(load):
    operator = one(
        load,
        "  - func: put_\n    kind: put\n    attempt: put\n"
        "    code: {accumulate: {false: set, true: accumulate}}\n",
    )
    assert operator.chosen_by == "accumulate" and operator.all_codes == ("set", "accumulate")


def test_options_of_an_elementwise_entry(load):
    options = one(
        load,
        "  - func: logical_not.out\n    kind: unary\n    rule: bool\n    result: bool\n"
        "    floating: true\n    fast: false\n    check: {dtype: {is_real: self}}\n",
    ).options
    assert options.rule == "bool" and options.bool_result and options.floating
    assert not options.fast and [p.text for p in options.predicates] == ["ops::is_real(self)"]


def test_array_attribute_of_several_arguments(load):
    mapping = one(
        load,
        "  - func: upsample_nearest2d.out\n    kind: upsample\n    code: nearest\n"
        "    attrs: {spatial: 2, scales: [scales_h, scales_w]}\n    ignore: [output_size]\n",
    ).mapping
    attrs = named(mapping.kind.attrs, mapping.attrs)
    assert attrs["scales"] == Source(arguments=("scales_h", "scales_w"))
    assert attrs["spatial"] == Source(constant=2)


def test_foreach_rows(load):
    pack = load(
        "foreach:\n  - names: [abs, neg]\n    kind: unary\n"
        "  - names: [add]\n    kind: binary\n    overloads: [List, Tensor]\n"
        "    if: {Tensor: {is_one: alpha}}\n"
    )
    names = [[str(f.func.name) for f in o.functions] for o in pack.foreach()]
    assert names == [
        ["_foreach_abs", "_foreach_abs_"],
        ["_foreach_neg", "_foreach_neg_"],
        ["_foreach_add.List", "_foreach_add_.List"],
        ["_foreach_add.Tensor", "_foreach_add_.Tensor"],
    ]
    assert [o.code for o in pack.operators] == ["abs", "neg", "add", "add"]
    conditions = [[p.text for p in o.options.predicates] for o in pack.operators[2:]]
    assert conditions == [[], ["ops::is_one(alpha)"]]


def test_listed_only(load):
    pack = load(
        "by_hand:\n  - copy_\n  - func: of_another_torch\n    optional: true\n"
        "  - func: flip\n    uses: flip\n"
    )
    assert [o.name for o in pack.operators] == ["copy_", "flip"]
    assert not pack.declared() and not pack.framed() and not pack.mapped()
