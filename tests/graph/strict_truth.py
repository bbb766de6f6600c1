# SPDX-License-Identifier: Apache-2.0
"""What the report claims about a graph, what strict compile did, and where the graph really ran.

The claim comes from the report. What happened comes from counters that the report does not read: the
ladder's (torch_npu._C._fallback_rows) and the number of calls back into Python, both taken over a
recording and a replay of the compiled graph. Results are held to the CPU.
"""

import warnings

import torch
import torchair
from test_operators import NOT_UNIQUE, SKIP, traced
from torch.utils._pytree import tree_flatten
from torch_npu import _C
from torchair import _compiler, _explain
from torchair.configs.compiler_config import CompilerConfig

# Results are random, hold uninitialised memory, or are not unique.
NOT_COMPARED = SKIP | NOT_UNIQUE | {
    "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like",
    "randint", "randint_like", "randn", "randn_like", "uniform", "svd_lowrank", "pca_lowrank",
    "linalg.svd", "svd", "linalg.eig", "linalg.eigh", "linalg.qr", "qr", "geqrf", "ormqr",
    "nn.functional.rrelu", "nn.functional.alpha_dropout", "nn.functional.dropout",
    "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d",
    "nn.functional.scaled_dot_product_attention", "nn.functional.multi_head_attention_forward",
    "matrix_exp",  # large and small numbers cancel
    "torch.ops.aten._flash_attention_forward", "torch.ops.aten._efficient_attention_forward",
}  # fmt: skip

HALVES = (torch.float16, torch.bfloat16)


def claimed(module) -> bool:
    report = _explain.report_of([(module, "inference")], [])
    return not report.unsupported()


def strictly_compiled(module, inputs):
    """What strict compile gives; None when it refuses."""
    compiler = _compiler.Compiler(CompilerConfig(), strict=True)
    try:
        return compiler.compile(module, inputs, phase="inference")
    except NotImplementedError as error:
        assert "strict compile" in str(error), error
        return None


def ran(run, inputs):
    """(results of the second run, names of what left the device in both)."""
    given = [[t.detach().clone() for t in inputs] for _ in range(2)]
    _C._fallback_reset()
    for args in given:
        results = run(args)
    torch.npu.synchronize()  # samples of to() ask for copies to the host that are not waited for
    rows = [r for r in _C._fallback_rows() if r["rung"] >= 4 and not r["native"]]
    calls = {"getitem", "integer arithmetic"}
    islands = [n for n in run.program.names() if "::" not in n and n not in calls]
    return tree_flatten(results)[0], sorted({row["overload"] for row in rows} | set(islands))


def right(op, got, wanted) -> bool:
    """Near the CPU's results, which are exact where ours are half types; by the largest of them."""
    # Views of a part of their memory begin elsewhere once they are on the device.
    if op.name in NOT_COMPARED or op.variant_test_name == "partial_views":
        return True
    for a, b in zip(got, wanted, strict=True):
        if isinstance(a, torch.Tensor) and a.layout == torch.strided and a.numel():
            half = a.dtype in HALVES
            # The exact value of a half result is float64's rounded once: beyond 65504 it is infinite.
            b = b.to(a.dtype) if half else b
            a, b = (t.resolve_conj().resolve_neg().cpu() for t in (a, b))
            a, b = (t.to(torch.complex128 if a.is_complex() else torch.float64) for t in (a, b))
            size = b[b.abs().isfinite()].abs().amax().item() if b.abs().isfinite().any() else 1.0
            near = 2e-2 if half else 1e-4
            if not torch.allclose(a, b, rtol=near, atol=near * max(size, 1), equal_nan=True):
                return False
    return True


def judge(op, sample, dtype) -> bool | None:
    """Asserts that claim, strict compile and run agree; the claim, None where there is no graph."""
    found = traced(op, sample, dtype)
    if found is None:
        return None
    module, inputs, _ = found
    what = f"{op.name} {op.variant_test_name} {dtype} {[tuple(t.shape) for t in inputs]}"
    says = claimed(module)
    run = strictly_compiled(module, inputs)
    assert says == (run is not None), f"{what}: the report says {says}"
    if run is None:
        run = torchair.get_compiler()(module, inputs)
    got, left = ran(run, inputs)
    assert says == (not left), f"{what}: the report says {says}, the CPU computed {left}"
    assert right(op, got, on_cpu(op, sample)), f"{what}: {got}"
    return says


def on_cpu(op, sample):
    """The operator on the CPU; halves as float64."""
    exact = sample.transform(
        lambda v: v.double() if isinstance(v, torch.Tensor) and v.dtype in HALVES else v
    )
    with torch.no_grad():
        return tree_flatten(op.op(exact.input, *exact.args, **exact.kwargs))[0]


def disagreements(operators, dtypes, at_most: int) -> tuple[list[str], int, int]:
    """(what was wrong, cases claimed to be supported, cases claimed not to be)."""
    wrong, answers = [], []
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for op in operators:
            for dtype in dtypes:
                if dtype not in op.supported_dtypes("cpu") or op.name in SKIP:
                    continue
                for sample in list(op.sample_inputs("cpu", dtype))[:at_most]:
                    try:
                        answers.append(judge(op, sample, dtype))
                    except Exception as error:
                        wrong.append(
                            f"{op.name} {dtype}: {type(error).__name__}: {str(error)[:300]}"
                        )
    return wrong, answers.count(True), answers.count(False)
