# SPDX-License-Identifier: Apache-2.0
"""Every operator's results beside those of its fake kernel: dtype, sizes, strides, storage offset.

python tests/opinfo/fake_results.py [--op NAME ...] [--mode MODE ...] [--dtype DTYPE ...]
    [--kernels fast|all] [--workers 2] [--samples 0] [--quick] [--json FILE]

torch.compile plans memory and layouts from fake kernels, so a result that differs from them is a wrong
one, or a crash, in a compiled graph. OpInfo's samples and their gradients run on npu:0 under a mode that
sees every call below autograd and asks the fake kernel about the same arguments. Exit status 1 when a
difference is not in fake_results.yaml, or an entry of it was not seen (whole sweeps only).
"""

import contextlib
import logging
import os
import sys
import time
import warnings
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import sweep  # noqa: E402

# Their results are the arguments, or belong to no kernel.
SKIPPED = {
    "aten::lift_fresh",
    "aten::lift_fresh_copy",
    "aten::set_.source_Storage_storage_offset",
    "aten::set_.source_Storage",
    "aten::_to_copy",  # to the CPU and back: the samples' own copies
    "aten::copy_",
}


def fact_list(tensor):
    import torch

    strides = None
    if tensor.layout == torch.strided and tensor.numel():
        # A dimension of one element has no stride that matters.
        strides = tuple(s for n, s in zip(tensor.shape, tensor.stride()) if n != 1)
    return {
        "dtype": tensor.dtype,
        "sizes": tuple(tensor.shape),
        "strides": strides,
        "offset": tensor.storage_offset() if tensor.layout == torch.strided else None,
        "device": tensor.device.type,
    }


def differences(real, fake):
    """(fact, text) for each fact that differs."""
    import torch
    from torch.utils._pytree import tree_flatten

    real, fake = tree_flatten(real)[0], tree_flatten(fake)[0]
    if len(real) != len(fake):
        return [("count", f"{len(real)} results, {len(fake)} by the fake kernel")]
    found = []
    for i, (r, f) in enumerate(zip(real, fake)):
        if isinstance(r, torch.Tensor) != isinstance(f, torch.Tensor):
            found.append(("kind", f"result {i} is {type(r).__name__}, fake {type(f).__name__}"))
        elif isinstance(r, torch.Tensor):
            own, theirs = fact_list(r), fact_list(f)
            for fact in own:
                if own[fact] != theirs[fact]:
                    text = f"result {i} has {own[fact]}, fake {theirs[fact]}"
                    found.append((fact, text))
    return found


def make_watch():
    import torch

    # Samples that are refused are refused by the fake kernel too, with a traceback in the log.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
        FakeTensorMode,
        UnsupportedOperatorException,
    )
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map

    nothing_to_say = (
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
        NotImplementedError,
    )

    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.compared, self.unasked, self.found = 0, 0, {}

        def ask(self, func, args, kwargs):
            """What the fake kernel gives, as a function to call; None where it is not asked."""
            plain = func._schema.name if not func._overloadname.strip("default") else ""
            name = plain or f"{func._schema.name}.{func._overloadname}"
            values = [v for v in tree_flatten((args, kwargs))[0] if isinstance(v, torch.Tensor)]
            on_npu = [v for v in values if v.device.type == "npu"]
            if (
                name in SKIPPED
                or not on_npu
                or any(v.layout != torch.strided for v in values)
                or any(v.is_conj() or v.is_neg() for v in values)
            ):
                return None, name
            mode = FakeTensorMode(allow_fallback_kernels=False)

            def fake(value):
                return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

            try:
                with torch.no_grad():
                    arguments = tree_map(fake, (args, kwargs))
            except Exception:
                return None, name

            def run():
                with mode, torch.no_grad():
                    return func(*arguments[0], **arguments[1])

            return run, name

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            ask, name = self.ask(func, args, kwargs)
            real = func(*args, **kwargs)
            if ask is None:
                return real
            try:
                fake = ask()
            except nothing_to_say:
                self.unasked += 1
                return real
            except Exception as error:
                self.note(name, "raises", f"{type(error).__name__}: {str(error).splitlines()[:1]}")
                return real
            self.compared += 1
            for fact, text in differences(real, fake):
                shapes = ", ".join(
                    f"{tuple(v.shape)}/{v.stride()} {sweep.dtype_name(v.dtype)}"
                    for v in tree_flatten((args, kwargs))[0]
                    if isinstance(v, torch.Tensor)
                )
                self.note(name, fact, f"{text}; of {shapes}")
            return real

        def note(self, name, fact, text):
            self.found.setdefault(f"{name} {fact}", text)

    return Watch()


def run_operator(op, mode, dtype, most):
    import torch
    from cases import Mover, call, chosen_samples, tensors
    from torch.utils._pytree import tree_map

    watch = make_watch()
    grad = contextlib.nullcontext() if mode == "gradient" else torch.no_grad()
    with grad, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, sample in chosen_samples(op, mode, dtype, most):
            tree = tree_map(Mover(), (sample.input, sample.args, sample.kwargs))
            # What cannot run here is cases.py's to judge.
            with contextlib.suppress(Exception), watch:
                results = sample.output_process_fn_grad(call(op, tree))
                if mode == "gradient":
                    results = [t for t in tensors(results) if t.requires_grad]
                    leaves = [t for t in tensors(tree) if t.requires_grad]
                    seeds = [torch.ones_like(t) for t in results]
                    torch.autograd.grad(results, leaves, seeds, allow_unused=True)
    return {
        "compared": watch.compared,
        "unasked": watch.unasked,
        "failure": None,
        "found": watch.found,
    }


def expected(kernels):
    rows = yaml.safe_load((HERE / "fake_results.yaml").read_text()) or []
    return {
        f"{name} {fact}": row
        for row in rows
        for name in sweep.listed(row["op"])
        for fact in sweep.listed(row["fact"])
        if kernels in sweep.listed(row.get("kernels", ["fast", "all"]))
    }


def judge(rows, kernels, complete):
    """Lines to print about what is not as fake_results.yaml says."""
    known, found = expected(kernels), {}
    for row in rows:
        for key, text in row.get("found", {}).items():
            found.setdefault(key, f"{text} ({row['op']} {row['mode']} {row['dtype']})")
    lines = [f"DIFFERS {k}: {text}" for k, text in sorted(found.items()) if k not in known]
    lines += [f"FAILED {' '.join(sweep.key(r))}: {r['failure']}" for r in rows if r["failure"]]
    if complete:
        unseen = (k for k, row in known.items() if k not in found and not row.get("rare"))
        lines += [f"NOT SEEN, remove from fake_results.yaml: {k}" for k in unseen]
    return lines


def main():
    parser = sweep.arguments(__doc__.splitlines()[0])
    options = parser.parse_args()
    os.environ["NPU_HOST_KERNELS"] = options.kernels
    begun = time.monotonic()
    chosen = sweep.operators(set(options.op))
    modes = options.mode or ["forward", "gradient"]
    samples = options.samples or (2 if options.quick else 0)
    wanted = sweep.Wanted(modes, options.dtype, samples, run=run_operator)
    rows = sweep.sweep(chosen, options.workers, wanted)
    compared = sum(row["compared"] for row in rows)
    print(f"{compared} calls compared, {time.monotonic() - begun:.0f} s")
    partial = options.op or samples or options.mode or options.dtype
    lines = judge(rows, options.kernels, complete=not partial)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
