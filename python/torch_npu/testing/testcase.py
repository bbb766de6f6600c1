# SPDX-License-Identifier: Apache-2.0
"""TestCase: unittest with comparisons of tensors across devices, and run_tests."""

import contextlib
import json
import os
import random
import unittest
import warnings

import numpy as np
import torch

from ._compare import Mismatch, compare_almost, compare_rtol
from .common_utils import set_npu_device

try:
    from expecttest import TestCase as _Base
except ImportError:  # only its assertExpected* are missing then
    _Base = unittest.TestCase

__all__ = ["TestCase", "run_tests"]

_DEFAULT_SEED = 666


def _disabled_tests() -> set[str]:
    """Names like "test_add (__main__.TestAdd)" from the JSON file DISABLED_TESTS_FILE."""
    path = os.environ.get("DISABLED_TESTS_FILE")
    if not path:
        return set()
    with open(path, encoding="utf-8") as file:
        return set(json.load(file))


def _same_length(x, y) -> bool:
    return len(x) == len(y)


class TestCase(_Base):
    """Selects the device, seeds every generator before each test, compares tensors."""

    precision = 1e-5
    maxDiff = None
    exact_dtype = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        set_npu_device()

    def setUp(self):
        super().setUp()
        name = f"{self._testMethodName} (__main__.{type(self).__name__})"
        if name in _disabled_tests():
            self.skipTest("listed in DISABLED_TESTS_FILE")
        seed = int(os.environ.get("SEED", _DEFAULT_SEED))
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    # Comparisons ------------------------------------------------------------

    def assertRtolEqual(
        self, x, y, prec=1.0e-4, prec16=1.0e-3, auto_trans_dtype=False, message=None
    ):
        """Passes when the share of elements off by more than `prec` is at most `prec`.

        Off is counted relatively and absolutely; one of them has to pass.
        Shapes, dtypes and the places of NaN are the same; float16 and bfloat16
        are held to `prec16`, bool to equality. Lists go element by element.
        """
        if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)):
            self.assertTrue(_same_length(x, y), message or f"{len(x)} items against {len(y)}")
            for a, b in zip(x, y):
                self.assertRtolEqual(a, b, prec, prec16, auto_trans_dtype, message)
            return
        self._passes(message, compare_rtol, x, y, prec, prec16, auto_trans_dtype)

    def assertEqual(self, x, y, prec=None, message="", allow_inf=False, exact_dtype=None):
        """Equality; tensors and numbers may differ by `prec` (1e-5), absolutely.

        Tensors may be on different devices. `allow_inf` accepts infinities of
        opposite sign. Containers are compared item by item.
        """
        if isinstance(prec, str) and not message:
            prec, message = None, prec
        prec = self.precision if prec is None else prec
        exact_dtype = self.exact_dtype if exact_dtype is None else exact_dtype
        if isinstance(x, np.ndarray) or isinstance(y, np.ndarray):
            x, y = torch.as_tensor(x), torch.as_tensor(y)
        if isinstance(x, torch.Tensor) or isinstance(y, torch.Tensor):
            self._passes(message, compare_almost, x, y, prec, allow_inf, exact_dtype)
        elif _is_number(x) and _is_number(y):
            self._passes(message, compare_almost, x, y, prec, allow_inf, False)
        elif isinstance(x, dict) and isinstance(y, dict):
            self.assertEqual(list(x), list(y), prec, message or "other keys")
            for key in x:
                self.assertEqual(x[key], y[key], prec, message, allow_inf, exact_dtype)
        elif _is_sequence(x) and _is_sequence(y):
            self.assertTrue(_same_length(x, y), message or f"{len(x)} items against {len(y)}")
            for a, b in zip(x, y):
                self.assertEqual(a, b, prec, message, allow_inf, exact_dtype)
        else:
            super().assertEqual(x, y, message or None)

    def assertAlmostEqual(self, x, y, places=None, msg=None, delta=None, allow_inf=None):
        prec = self.precision
        if delta is not None:
            prec = delta
        elif places is not None:
            prec = 10**-places
        self.assertEqual(x, y, prec, msg or "", bool(allow_inf))

    def assertNotEqual(self, x, y, prec=None, message=""):
        """Different shapes, or a difference of at least `prec` somewhere."""
        if isinstance(prec, str) and not message:
            prec, message = None, prec
        try:
            self.assertEqual(x, y, prec)
        except self.failureException:
            return
        self.fail(message or f"expected two different values, but both are {x!r}")

    def assertTensorsSlowEqual(self, x, y, prec=None, message=""):
        """The same as assertEqual for two tensors."""
        self.assertEqual(x.size(), y.size(), message=message)
        self.assertEqual(x, y, prec, message)

    def _passes(self, message, compare, *args) -> None:
        try:
            compare(*args)
        except Mismatch as mismatch:
            self.fail(f"{message}: {mismatch}" if message else str(mismatch))

    def assertObjectIn(self, obj, iterable):
        """`in` by identity: tensors compare element by element."""
        if not any(item is obj for item in iterable):
            self.fail(f"{obj!r} is not one of the objects")

    # Warnings ---------------------------------------------------------------

    def assertNotWarn(self, call_fn, msg=""):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call_fn()
        self.assertTrue(not caught, msg or f"warned: {[str(w.message) for w in caught]}")

    def assertWarns(self, call_fn, msg="", *args, **kwargs):
        """`call_fn()` warns; with a Warning class it is unittest's own assertWarns."""
        if isinstance(call_fn, (type, tuple)):
            rest = (msg, *args) if msg else args
            return super().assertWarns(call_fn, *rest, **kwargs)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call_fn()
        self.assertTrue(caught, msg or "expected a warning")

    @contextlib.contextmanager
    def maybeWarnsRegex(self, category, regex=""):
        """Inside, a warning may be given; then it is of this category and text."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            self.assertTrue(issubclass(warning.category, category), str(warning.message))
            self.assertRegex(str(warning.message), regex)

    # Sparse tensors ---------------------------------------------------------

    def genSparseTensor(self, size, sparse_dim, nnz, is_uncoalesced, device="cpu"):
        """A random COO tensor, with its indices and values."""
        size = list(size)
        if nnz and 0 in size[:sparse_dim]:
            raise ValueError(f"genSparseTensor: size {size} has no room for {nnz} elements")
        values = torch.randn([nnz, *size[sparse_dim:]], dtype=torch.float64, device=device)
        bounds = torch.tensor(size[:sparse_dim], dtype=torch.float64, device=device).view(-1, 1)
        places = torch.rand(sparse_dim, nnz, dtype=torch.float64, device=device)
        indices = (places * bounds).long()
        if is_uncoalesced:
            values = torch.cat([values, torch.randn_like(values)])
            indices = torch.cat([indices, indices], dim=1)
        x = torch.sparse_coo_tensor(indices, values, torch.Size(size))
        if not is_uncoalesced:
            x = x.coalesce()
        return x, x._indices().clone(), x._values().clone()

    def safeToDense(self, t):
        return self.safeCoalesce(t).to_dense()

    def safeCoalesce(self, t):
        """t.coalesce(), checked against sums made one element at a time."""
        sums: dict[tuple, torch.Tensor] = {}
        for place, value in zip(t._indices().t().tolist(), t._values()):
            key = tuple(place)
            sums[key] = sums[key] + value if key in sums else value
        got = t.coalesce()
        self.assertTrue(got.is_coalesced())
        self.assertEqual(got._indices().t().tolist(), [list(key) for key in sorted(sums)])
        for key, value in zip(sorted(sums), got._values()):
            self.assertEqual(value, sums[key])
        return got


def _is_number(value) -> bool:
    return isinstance(value, (int, float, complex, np.number, np.bool_))


def _is_sequence(value) -> bool:
    return isinstance(value, (list, tuple)) and not isinstance(value, str)


def run_tests() -> None:
    """Runs the tests of the calling script."""
    unittest.main(module="__main__")
