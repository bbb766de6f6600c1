# SPDX-License-Identifier: Apache-2.0
"""The wrong inputs of PyTorch's OpInfo database: npu refuses each as the CPU does.

Run as a script it prints, as JSON, every disagreement as [operator, sample, what].
"""

import json
import re
import sys
import warnings
from pathlib import Path

import torch
from torch.utils._pytree import tree_map

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


class Mover:
    """Moves arguments to npu; what was one tensor, or shared memory, still is and does."""

    def __init__(self):
        self._storages, self._tensors = {}, {}

    def __call__(self, value):
        if not isinstance(value, torch.Tensor):
            return torch.device("npu") if value == torch.device("cpu") else value
        if value.device.type != "cpu":  # a sample about mixed devices
            return value
        if id(value) not in self._tensors:
            self._tensors[id(value)] = (value, self._moved(value))
        return self._tensors[id(value)][1]

    def _moved(self, value):
        if value.layout != torch.strided or value.is_conj() or value.is_neg():
            return value.detach().to("npu").requires_grad_(value.requires_grad)
        source = value.untyped_storage()
        if source._cdata not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(source)
            self._storages[source._cdata] = flat.npu().untyped_storage()
        moved = torch.empty(0, dtype=value.dtype, device="npu")
        moved.set_(
            self._storages[source._cdata], value.storage_offset(), value.size(), value.stride()
        )
        return moved.requires_grad_(value.requires_grad)


def raised(call):
    """The exception of a call, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except Exception as error:
        return error
    return None


# Said in other words, which are as clear.
REWORDED = {"multinomial": "probability tensor contains either `inf`, `nan` or element < 0"}


def disagreement(op, bad) -> str | None:
    sample = bad.sample_input
    move = Mover()
    args = tree_map(move, (sample.input, sample.args, sample.kwargs))
    on_cpu = raised(lambda: op(sample.input, *sample.args, **sample.kwargs))
    if on_cpu is None:
        return None
    on_npu = raised(lambda: (op(args[0], *args[1], **args[2]), torch.npu.synchronize()))
    if on_npu is None:
        return f"nothing raised; CPU: {type(on_cpu).__name__}: {on_cpu}"
    if type(on_npu) is not type(on_cpu):
        return f"{type(on_npu).__name__}: {on_npu}; CPU: {type(on_cpu).__name__}: {on_cpu}"
    if "INTERNAL ASSERT" in str(on_npu) and "INTERNAL ASSERT" not in str(on_cpu):
        return f"an internal error: {on_npu}"
    same_words = (
        str(on_npu).replace("npu:0", "cpu").splitlines()[:1] == str(on_cpu).splitlines()[:1]
    )
    fits = re.search(bad.error_regex, str(on_npu), re.DOTALL)
    was_to_fit = re.search(bad.error_regex, str(on_cpu), re.DOTALL)
    reworded = op.name in REWORDED and REWORDED[op.name] in str(on_npu)
    if was_to_fit and not fits and not same_words and not reworded:
        return f"other words: {on_npu}; CPU: {on_cpu}"
    return None


def main() -> None:
    from amx import avoid_broken_amx

    avoid_broken_amx()
    import torch_npu  # noqa: F401
    from torch.testing._internal.common_methods_invocations import op_db

    found, count = [], 0
    for op in op_db:
        if op.error_inputs_func is None:
            continue
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        for number, bad in enumerate(op.error_inputs("cpu")):
            count += 1
            what = disagreement(op, bad)
            if what:
                found.append([name, number, what])
    usable = (torch.ones(4, device="npu") + 1).sum().item() == 8
    print(json.dumps({"samples": count, "usable": usable, "disagreements": found}))


if __name__ == "__main__":
    main()
