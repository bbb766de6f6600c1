# SPDX-License-Identifier: Apache-2.0
"""Every case of the table: values in each dtype, gradients, fake tensors."""

import collections
from pathlib import Path

import pytest
import torch
from result_dtypes import expected
from table import CASES, arguments, flat, is_tie, plain, written
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


# Results in arguments or random ones: test_special.py, test_drawn.py. With other ranks: tests/dist.
SPECIAL = {
    "_npu_dropout", "npu_dropout_do_mask", "npu_dropout_backward", "npu_dropout_with_add_softmax",
    "npu_scatter_pa_kv_cache", "npu_gather_pa_kv_cache", "npu_prefetch", "_npu_format_cast",
    "_npu_paged_attention", "_npu_flash_attention_unpad", "_npu_reshape_and_cache",
    "_npu_reshape_and_cache_siso", "fft_c2r_backward", "fft_r2c_backward",
    "npu_scatter_list_", "_dropout_with_byte_mask", "_dropout_with_byte_mask_backward",
    "dropout_with_byte_mask", "npu_dropout_with_add_softmax_backward",
    "_npu_fusion_attention_v3_infer_output", "_npu_fusion_attention_grad_v3_infer_output",
    "_npu_fusion_attention_v3_get_max_workspace", "_npu_fusion_attention_grad_v3_get_max_workspace",
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_fused_infer_attention_score_v2_get_max_workspace", "npu_dropout_gen_mask",
    "_npu_dropout_gen_mask", "npu_all_gather_base_mm", "npu_mm_reduce_scatter_base",
    "npu_mm_all_reduce_base", "_npu_distribute_barrier",
    "_npu_fused_infer_attention_score_infer_output",
    "_npu_fused_infer_attention_score_v2_infer_output",
    "npu_advance_step_flashattn", "npu_sim_exponential_", "npu_random_choice_with_mask",
    "npu_sub_sample", "empty_with_swapped_memory", "decode_jpeg",
    "npu_all_gather_quant_mm", "npu_quant_mm_reduce_scatter", "npu_all_to_all_matmul",
    "npu_matmul_all_to_all", "npu_all_to_all_quant_matmul", "npu_quant_matmul_all_to_all",
    "npu_alltoallv_gmm", "npu_gmm_alltoallv", "npu_alltoallv_quant_gmm", "npu_quant_gmm_alltoallv",
    "npu_moe_distribute_dispatch", "npu_moe_distribute_dispatch_v2",
    "npu_moe_distribute_dispatch_setup", "npu_moe_distribute_dispatch_teardown",
    "npu_moe_distribute_combine", "npu_moe_distribute_combine_v2",
    "npu_moe_distribute_combine_add_rms_norm", "npu_moe_distribute_combine_setup",
    "npu_moe_distribute_combine_teardown",
}  # fmt: skip

SPECIAL_FILES = (
    "tests/npu_ops/test_special.py", "tests/npu_ops/test_drawn.py",
    "tests/npu_ops/test_refused_legacy.py", "tests/python/test_contrib_regions.py",
    "tests/dist/test_products.py", "tests/dist/test_quant_products.py",
    "tests/dist/test_expert_ranks.py",
)  # fmt: skip


def operator(name: str):
    namespace, _, bare = name.rpartition("::")
    packet = getattr(getattr(torch.ops, namespace or "npu"), bare.partition(".")[0])
    return getattr(packet, bare.partition(".")[2]) if "." in bare else packet


class OnlyPyTorch(TorchDispatchMode):
    """An oracle is PyTorch's own arithmetic on the CPU: no operator of npu, nothing on the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.namespace in ("aten", "prims", "prim"), func
        out = func(*args, **(kwargs or {}))
        for x in flat(out) if isinstance(out, (list, tuple)) else [out]:
            assert not isinstance(x, torch.Tensor) or x.device.type == "cpu", func
        return out


def reference(case):
    args, kwargs = plain(case)
    with OnlyPyTorch():
        result = case.reference(*args, **kwargs)
    return flat(result) + written(case, args, kwargs)


def compare(case, found, expected, dtype) -> None:
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    assert any(want is not None for want in expected), "nothing to compare"
    tolerance = case.tolerance if case.tolerance is not None else TOLERANCE[dtype]
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        if want is None:
            continue
        if not isinstance(want, torch.Tensor):
            assert got == want, f"output {i}"
            continue
        assert got.shape == want.shape, f"output {i}: {got.shape}, expected {want.shape}"
        if not want.is_floating_point():
            assert got.dtype == want.dtype, f"output {i}: {got.dtype}"
            apart = (got.cpu().long() - want.long()).abs()
            # A neighbour is right where the exact number lies on the border between both.
            allowed = is_tie(want.exact).long() if hasattr(want, "exact") else 0
            if hasattr(want, "either"):
                allowed = torch.where(want.either, 255, allowed)
                assert want.either.sum() <= 1 + 0.01 * want.numel(), "too much on borders"
            assert (apart <= allowed).all(), f"output {i}: {got.cpu()[apart > allowed]}"
            continue
        if want.dtype.itemsize == 1:  # float8: the reference chose the format
            assert got.dtype == want.dtype, f"output {i}: {got.dtype}"
            assert want.either.sum() <= 1 + 0.01 * want.numel(), "too much on borders"
            want = torch.where(want.either, got.cpu().double(), want.double())
        torch.testing.assert_close(
            got.cpu().double(),
            want.double(),
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda m, i=i: f"output {i}: {m}",
        )


@pytest.mark.parametrize("case, dtype", [(c, d) for c in CASES for d in c.dtypes], ids=str)
def test_values(case, dtype):
    args, kwargs = arguments(case, dtype)
    found = operator(case.op)(*args, **kwargs)
    compare(case, flat(found) + written(case, args, kwargs), reference(case), dtype)
    if dtype in (torch.float16, torch.bfloat16):
        floats = [x for x in flat(found) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        dtypes = [x.dtype for x in floats if x.dtype.itemsize > 1]
        assert dtypes == expected(case, dtype)


# Their strides are arguments: another layout asks for other elements.
READS_STORAGE = {"npu_stride_copy", "npu_stride_copy.out"}


def with_gaps(value):
    """The same numbers in every second element of a larger tensor."""
    if isinstance(value, torch.Tensor) and value.dim() > 0:
        twice = (*value.shape[:-1], 2 * value.shape[-1])
        return torch.empty(twice, dtype=value.dtype, device=value.device)[..., ::2].copy_(value)
    return [with_gaps(v) for v in value] if isinstance(value, list) else value


def schema_of(case):
    found = operator(case.op)
    return (found if isinstance(found, torch._ops.OpOverload) else found.default)._schema


def two_of_each():
    seen = collections.Counter()
    for case in CASES:
        seen[case.op] += 1
        if seen[case.op] <= 2 and case.op not in READS_STORAGE:
            yield case


@pytest.mark.parametrize("case", two_of_each(), ids=str)
def test_strided_operands(case):
    dtype = case.dtypes[0]
    args, kwargs = arguments(case, dtype)
    # Caches and states that an operator writes into have to be contiguous.
    kept = {*case.writes, "kv_cache", "kr_cache"}
    names = [a.name for a in schema_of(case).arguments]
    args = [a if {i, names[i]} & kept else with_gaps(a) for i, a in enumerate(args)]
    kwargs = {k: v if k in kept else with_gaps(v) for k, v in kwargs.items()}
    found = operator(case.op)(*args, **kwargs)
    compare(case, flat(found) + written(case, args, kwargs), reference(case), dtype)


@pytest.mark.parametrize("case", [c for c in CASES if c.grad], ids=str)
def test_gradients(case):
    """Against autograd through the reference, in float64, with the same random output gradients."""
    results = []
    for make, call in (
        (lambda: arguments(case, torch.float64), operator(case.op)),
        (lambda: plain(case), case.reference),
    ):
        args, kwargs = make()
        for i in case.grad:
            args[i].requires_grad_()
        outs = [
            o
            for o in flat(call(*args, **kwargs))
            if isinstance(o, torch.Tensor) and o.requires_grad
        ]
        generator = torch.Generator().manual_seed(0)
        seeds = [torch.rand(o.shape, generator=generator, dtype=torch.float64) for o in outs[:1]]
        seeds = [s.to(outs[0].device, outs[0].dtype) for s in seeds]
        results.append(torch.autograd.grad(outs[:1], [args[i] for i in case.grad], seeds))
    for i, got, want in zip(case.grad, *results, strict=True):
        torch.testing.assert_close(
            got.cpu(), want, rtol=1e-5, atol=1e-6, msg=lambda m, i=i: f"argument {i}: {m}"
        )


@pytest.mark.parametrize("case", [c for c in CASES if c.fake], ids=str)
def test_fake(case):
    dtype = case.dtypes[0]
    args, kwargs = arguments(case, dtype)
    real = flat(operator(case.op)(*args, **kwargs))
    args, kwargs = arguments(case, dtype)
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:

        def fake(value):
            if isinstance(value, torch.Tensor):
                return mode.from_tensor(value)
            return [fake(v) for v in value] if isinstance(value, list) else value

        shapes = flat(
            operator(case.op)(*[fake(a) for a in args], **{k: fake(v) for k, v in kwargs.items()})
        )
    for got, want in zip(shapes, real, strict=True):
        if isinstance(want, torch.Tensor):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            assert got.device.type == want.device.type


def test_every_implemented_operator_has_a_case():
    import torch_npu

    covered = {c.op.partition(".")[0].rpartition("::")[2] for c in CASES}
    names = {n for n, row in torch_npu._C._custom_operators("npu").items() if row[0]}
    assert not sorted(names - covered - SPECIAL)


def test_the_listed_ones_are_those_with_cases():
    """`opennpu ops --custom` counts what is tested; what has no case here is tested in one of these files."""
    import torch_npu

    covered = {c.op.partition(".")[0] for c in CASES} | SPECIAL
    names = [n for n, row in torch_npu._C._custom_operators("npu").items() if row[0]]
    assert len(set(names) & covered) == len(names) >= 200
    root = Path(__file__).parents[2]
    text = "".join(file.read_text(encoding="utf-8") for file in (root / f for f in SPECIAL_FILES))
    for name in SPECIAL:
        assert name.removesuffix("_get_max_workspace").removeprefix("_npu_") in text, name
