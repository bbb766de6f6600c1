# SPDX-License-Identifier: Apache-2.0
"""Two answers to one question: values bit by bit, and what else PyTorch promises of a result."""

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

DEVICE = "npu:0"


class Mismatch(Exception):
    """The npu device answered something else than the CPU."""


def tensors(tree):
    return [t for t in tree_flatten(tree)[0] if isinstance(t, torch.Tensor)]


def raw_bytes(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return flat.copy_(tensor.detach().reshape(-1)).view(torch.uint8)


def raw_elements(tensor):
    """The bytes of each element, one row for each."""
    return raw_bytes(tensor.cpu()).reshape(tensor.numel(), tensor.element_size())


def parts(tensor):
    """The strided tensors a result of any layout is made of."""
    if tensor.layout == torch.strided:
        return [tensor]
    if tensor.layout == torch.sparse_coo:
        names = ("_indices", "_values")
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        names = ("crow_indices", "col_indices", "values")
    else:
        names = ("ccol_indices", "row_indices", "values")
    return [getattr(tensor, name)() for name in names]


def same_bits(expected, got):
    if not isinstance(expected, torch.Tensor):
        return expected == got or (expected != expected and got != got)
    pairs = zip(parts(expected), parts(got.cpu()))
    return all(torch.equal(raw_bytes(e), raw_bytes(g)) for e, g in pairs)


def different(expected, got):
    """The numbers of the results that are not the same bits."""
    pairs = zip(tree_flatten(expected)[0], tree_flatten(got)[0])
    return [i for i, (e, g) in enumerate(pairs) if not same_bits(e, g)]


def with_one_nan(tree):
    """The same bits, but every NaN has those of one and the same NaN."""

    def change(value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        plain = value.cpu()
        return plain.masked_fill(plain.isnan(), float("nan"))

    return tree_map(change, tree)


def facts(tensor):
    strided = tensor.layout == torch.strided
    return {
        "dtype": tensor.dtype,
        "sizes": tuple(tensor.shape),
        "layout": tensor.layout,
        "strides": tensor.stride() if strided and tensor.numel() else None,
        "conj": tensor.is_conj(),
        "neg": tensor.is_neg(),
    }


def check_facts(expected, got, what, device="npu"):
    """Shape, dtype, strides and place of every result."""
    expected, got = tree_flatten(expected)[0], tree_flatten(got)[0]
    if len(expected) != len(got):
        raise Mismatch(f"{what}: {len(expected)} results on the CPU, {len(got)} here")
    for i, (e, g) in enumerate(zip(expected, got)):
        if isinstance(e, torch.Tensor) != isinstance(g, torch.Tensor):
            raise Mismatch(f"{what}: result {i} is {type(g).__name__}, CPU's {type(e).__name__}")
        if not isinstance(e, torch.Tensor):
            continue
        if g.device.type != device:
            raise Mismatch(f"{what}: result {i} is on {g.device}")
        fact, found = facts(e), facts(g)
        for name in fact:
            if fact[name] != found[name]:
                raise Mismatch(f"{what}: result {i} {name} {found[name]}, CPU's {fact[name]}")


def with_layout_of(expected, got):
    """`got` in the dtypes and strides of `expected`."""

    def change(e, g):
        if not isinstance(e, torch.Tensor) or not isinstance(g, torch.Tensor) or e.shape != g.shape:
            return g
        if e.dtype == g.dtype and e.stride() == g.stride():
            return g
        room = torch.empty_strided(e.shape, e.stride(), dtype=e.dtype, device=g.device)
        return room.copy_(g.detach())

    flat, spec = tree_flatten(got)
    pairs = zip(tree_flatten(expected)[0], flat)
    return tree_unflatten([change(e, g) for e, g in pairs], spec)


def check(expected, got, what):
    """Everything, and the same bits."""
    check_facts(expected, got, what)
    for i in different(expected, got):
        raise Mismatch(f"{what}: result {i} differs")


class Trace:
    """What a call did to its arguments, in terms that two devices share."""

    def __init__(self, arguments):
        self.arguments = tensors(arguments)
        self.versions = [self.version(t) for t in self.arguments]
        self.grew, self.aliases = [], []

    @staticmethod
    def version(tensor):
        return None if tensor.is_inference() else tensor._version

    @staticmethod
    def memory(tensor):
        if tensor.layout != torch.strided or not tensor.numel():
            return None
        return tensor.untyped_storage().data_ptr()

    def finish(self, results):
        """Call it with the results: which of them are arguments, or views of them."""
        after = [self.version(t) for t in self.arguments]
        self.grew = [b - a if a is not None else None for a, b in zip(self.versions, after)]
        known = [(self.memory(t), f"argument {i}", t) for i, t in enumerate(self.arguments)]
        for i, result in enumerate(tensors(results)):
            memory, found = self.memory(result), None
            for place, name, tensor in known:
                if result is tensor:
                    found = f"is {name}"
                    break
                if memory is not None and place == memory:
                    found = f"view of {name}, offset {result.storage_offset()}"
                    break
            self.aliases.append(found)
            known.append((memory, f"result {i}", result))
        return results

    def check(self, got, what):
        if self.grew != got.grew:
            raise Mismatch(f"{what}: versions grew by {got.grew}, CPU's by {self.grew}")
        for i, (expected, found) in enumerate(zip(self.aliases, got.aliases)):
            if expected != found:
                raise Mismatch(
                    f"{what}: result {i} {found or 'is new memory'}, "
                    f"on the CPU {expected or 'new memory'}"
                )

    def changed(self, results):
        """The arguments that were written to and are not results: they are answers too."""
        known = {id(t) for t in tensors(results)}
        grown = (t for t, grew in zip(self.arguments, self.grew) if grew)
        return [t for t in grown if id(t) not in known]
