# SPDX-License-Identifier: Apache-2.0
"""Every case of the table: values in each dtype, gradients, fake tensors."""

from pathlib import Path

import cases_attention  # noqa: F401
import cases_backward  # noqa: F401
import cases_boxes  # noqa: F401
import cases_chains  # noqa: F401
import cases_experts  # noqa: F401
import cases_gradients  # noqa: F401
import cases_inference  # noqa: F401
import cases_maths  # noqa: F401
import cases_norms  # noqa: F401
import cases_places  # noqa: F401
import cases_products  # noqa: F401
import cases_ranks  # noqa: F401
import cases_regions  # noqa: F401
import cases_writes  # noqa: F401
import pytest
import torch
from result_dtypes import expected
from table import CASES, arguments, flat, is_tie, plain
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


# Results in arguments or random ones: test_special.py. With other ranks: tests/dist/test_products.py.
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
}  # fmt: skip


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
        return case.reference(*args, **kwargs)


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
            assert (apart <= allowed).all(), f"output {i}: {got.cpu()[apart > allowed]}"
            continue
        torch.testing.assert_close(
            got.cpu().double(),
            want,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda m, i=i: f"output {i}: {m}",
        )


@pytest.mark.parametrize("case, dtype", [(c, d) for c in CASES for d in c.dtypes], ids=str)
def test_values(case, dtype):
    args, kwargs = arguments(case, dtype)
    found = operator(case.op)(*args, **kwargs)
    compare(case, found, reference(case), dtype)
    if dtype in (torch.float16, torch.bfloat16):
        dtypes = [
            x.dtype for x in flat(found) if isinstance(x, torch.Tensor) and x.is_floating_point()
        ]
        assert dtypes == expected(case, dtype)


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
    """`opennpu ops --custom` counts what is tested; what has no case here is tested in one of three files."""
    import torch_npu

    covered = {c.op.partition(".")[0] for c in CASES} | SPECIAL
    names = [n for n, row in torch_npu._C._custom_operators("npu").items() if row[0]]
    assert len(set(names) & covered) == len(names) >= 200
    tests = Path(__file__).parents[1]
    files = (
        tests / "npu_ops/test_special.py", tests / "python/test_contrib_regions.py",
        tests / "dist/test_products.py",
    )  # fmt: skip
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    for name in SPECIAL:
        assert name.removesuffix("_get_max_workspace").removeprefix("_npu_") in text, name
