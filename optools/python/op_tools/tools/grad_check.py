# SPDX-License-Identifier: Apache-2.0
"""OpGradCheck: is a backward that the program wrote the gradient of its forward?

    with op_tools.OpGradCheck(model, modules=r"layers\\.0"):
        train_step()

While it runs, the first calls of every torch.autograd.Function of the program, and of the modules
that were asked for, are computed again in float64: the gradient that backward gives is compared
with finite differences along random directions, and the gradient in the program's own dtype with
the one in float64. The program's own tensors, random states and gradients stay as they are.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd import Function
from torch.utils._pytree import tree_flatten, tree_unflatten

from op_tools.core.tables import dict_data_list_to_table

OK, WRONG, IMPRECISE, UNJUDGED = "ok", "wrong", "imprecise", "not judged"
_STEP = 1e-6  # of finite differences in float64
_TOLERANCE = 1e-4
_SEED = 20260101
_own = threading.local()


@dataclass
class Judged:
    """The gradient of one input of one call."""

    name: str  # of the function, or the module's path
    input: str
    verdict: str
    backward: float = 0.0  # along a random direction
    difference: float = 0.0  # what finite differences give along it
    error: float = 0.0  # of the gradient in the program's dtype, relative to float64's
    why: str = ""
    place: str = ""

    @property
    def numbers(self) -> str:
        if self.verdict == WRONG:
            return f"backward gives {self.backward:.6g}, finite differences {self.difference:.6g}"
        if self.verdict == IMPRECISE:
            return f"off by {self.error:.2g} of its length in the program's dtype"
        return self.why

    def row(self) -> dict[str, str]:
        return {
            "function": self.name,
            "gradient of": self.input,
            "verdict": self.verdict,
            "what": self.numbers,
            "called at": self.place or "-",
        }

    def __str__(self) -> str:
        where = f" at {self.place}" if self.place else ""
        return f"{self.name}: gradient of {self.input}: {self.verdict}: {self.numbers}{where}"


class GradientError(RuntimeError):
    """A gradient was wrong, and the tool was told to raise."""


class OpGradCheck:
    """Checks gradients of a running program. `calls`: how many of each function and module."""

    def __init__(
        self,
        model: nn.Module | None = None,
        modules: str | None = None,
        calls: int = 1,
        raises: bool = False,
    ) -> None:
        if (model is None) != (modules is None):
            raise ValueError(
                "OpGradCheck: give a model and modules, a regular expression of paths in it, or neither"
            )
        if calls < 1:
            raise ValueError(f"OpGradCheck: calls is {calls}; it must be at least 1")
        pattern = re.compile(modules or "")
        named = model.named_modules() if model is not None else ()
        self._modules = {m: path or "the model" for path, m in named if pattern.fullmatch(path)}
        if modules is not None and not self._modules:
            raise ValueError(f"OpGradCheck: no module of the model has a path that is {modules!r}")
        self._most, self._raises = calls, raises
        self._seen: Counter = Counter()
        self._put_back: list[Callable[[], None]] = []
        self.judged: list[Judged] = []

    # ---- life ------------------------------------------------------------------
    def start(self) -> OpGradCheck:
        if self._put_back:
            raise RuntimeError("OpGradCheck was started already: stop() it first")
        for function in _functions_of(Function):
            self._watch(function)
        known = vars(Function).get("__init_subclass__")

        def watch_new(cls: type, **kwargs: object) -> None:
            super(Function, cls).__init_subclass__(**kwargs)
            if _is_the_programs(cls):
                self._watch(cls)

        Function.__init_subclass__ = classmethod(watch_new)
        self._put_back.append(lambda: _restore(Function, "__init_subclass__", known))
        for module, path in self._modules.items():
            hook = module.register_forward_hook(self._on_module(path), with_kwargs=True)
            self._put_back.append(hook.remove)
        return self

    def stop(self) -> None:
        for put_back in reversed(self._put_back):
            put_back()
        if not self._put_back:
            return
        self._put_back = []
        self.report()
        if self._raises and self.faults:
            raise GradientError("\n".join(str(each) for each in self.faults))

    end = stop

    def __enter__(self) -> OpGradCheck:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def faults(self) -> list[Judged]:
        return [each for each in self.judged if each.verdict in (WRONG, IMPRECISE)]

    def report(self) -> None:
        counts = Counter(each.verdict for each in self.judged)
        said = ", ".join(f"{counts[v]} {v}" for v in (OK, WRONG, IMPRECISE, UNJUDGED) if counts[v])
        print(f"OpGradCheck: {said or 'no autograd function of the program was called'}")
        told = [each for each in self.judged if each.verdict != OK]
        if told:
            print(dict_data_list_to_table([each.row() for each in told]))

    # ---- what is watched ---------------------------------------------------------
    def _watch(self, function: type[Function]) -> None:
        own = vars(function).get("forward")
        if own is None:
            return  # inherited: its base is watched
        plain = function.forward

        def forward(*args: object, **kwargs: object) -> object:
            results = plain(*args, **kwargs)
            with_context = not _separate_context(function)
            # Another function may call this one's forward as a part of its own.
            is_apply = not with_context or getattr(args[0], "_forward_cls", None) is function
            if is_apply and self._wants(function):
                given = args[1:] if with_context else args
                self._judge(
                    f"{function.__module__}.{function.__qualname__}",
                    lambda *values: function.apply(*values),
                    given,
                    _names(plain, with_context, len(given)),
                )
            return results

        function.forward = staticmethod(forward)
        self._put_back.append(lambda: _restore(function, "forward", own))

    def _on_module(self, path: str) -> Callable:
        def judge(module: nn.Module, args: tuple, kwargs: dict, _results: object) -> None:
            if not self._wants(module):
                return
            flat, tree = tree_flatten((args, kwargs))
            twin = copy.deepcopy(module)
            twin._forward_hooks.clear()
            parameters = dict(module.named_parameters())

            def call(*values: object) -> object:
                at, given = tree_unflatten(list(values[: len(flat)]), tree)
                replaced = dict(zip(parameters, values[len(flat) :]))
                like = next((v for v in replaced.values() if v.is_floating_point()), None)
                own = twin if like is None else twin.to(like.dtype)
                return torch.func.functional_call(own, replaced, at, given)

            names = [f"argument {i}" for i in range(len(flat))] + list(parameters)
            self._judge(path, call, (*flat, *parameters.values()), names)

        return judge

    def _wants(self, what: object) -> bool:
        if getattr(_own, "busy", False) or torch.compiler.is_compiling():
            return False
        self._seen[what] += 1
        return self._seen[what] <= self._most

    def _judge(self, name: str, call: Callable, given: tuple, names: list[str]) -> None:
        place = _place()
        _own.busy = True
        try:
            with _random_states_kept(), torch.enable_grad(), _no_autocast():
                found = list(_judged(call, given, names))
        except Exception as error:  # a fault of the check is none of the program
            why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            found = [Judged("", "all inputs", UNJUDGED, why=why)]
        finally:
            _own.busy = False
        for each in found:
            each.name, each.place = name, place
        self.judged += found


# ---- one call --------------------------------------------------------------------
class _Call:
    """A call as a function of its floating point inputs, in one dtype."""

    def __init__(self, call: Callable, given: tuple, wide: bool) -> None:
        self._call, self._given = call, given
        self.inputs = {
            i: _copied(value, wide).requires_grad_(value.requires_grad)
            for i, value in enumerate(given)
            if _is_real_or_complex(value)
        }
        self._wide = wide
        self.leaves = {i: v for i, v in self.inputs.items() if v.requires_grad}

    def __call__(self, moved: dict[int, torch.Tensor] | None = None) -> list[torch.Tensor]:
        values = [
            (moved or {}).get(i, self.inputs.get(i, _fresh(value)))
            for i, value in enumerate(self._given)
        ]
        # Leaves themselves may not be written in place.
        values = [v.clone() if i in self.inputs else v for i, v in enumerate(values)]
        results = tree_flatten(self._call(*values))[0]
        return [r for r in results if _is_real_or_complex(r) and r.requires_grad]

    def gradients(self, cotangents: list[torch.Tensor]) -> dict[int, torch.Tensor]:
        results = self()
        given = [c.to(r) for c, r in zip(cotangents, results, strict=True)]
        leaves = list(self.leaves.values())
        found = torch.autograd.grad(results, leaves, given, allow_unused=True)
        return {
            i: torch.zeros_like(leaf) if g is None else g
            for (i, leaf), g in zip(self.leaves.items(), found)
        }


def _judged(call: Callable, given: tuple, names: list[str]) -> Iterator[Judged]:
    wide, own = _Call(call, given, wide=True), _Call(call, given, wide=False)
    if not wide.leaves:
        return
    results = wide()
    if not results:
        return
    if not all(torch.equal(a, b) for a, b in zip(results, wide())):
        yield Judged("", "all inputs", UNJUDGED, why="its results differ from call to call")
        return
    draw = torch.Generator().manual_seed(_SEED)
    cotangents = [_drawn(r, draw) for r in results]
    exact, narrow = wide.gradients(cotangents), own.gradients(cotangents)
    for i, leaf in wide.leaves.items():
        made = Judged("", names[i], OK)
        for _ in range(2):  # a kink may lie on one line, hardly on two
            direction = _drawn(leaf, draw)
            made.backward = _dot(exact[i], direction)
            made.difference = _difference(wide, i, direction, cotangents)
            size = max(abs(made.backward), abs(made.difference), _length(exact[i]) * 1e-2)
            if abs(made.backward - made.difference) <= _TOLERANCE * size + 1e-7:
                break
        else:
            made.verdict = WRONG
        length = _length(exact[i])
        if made.verdict == OK and length > 0:
            made.error = _length(narrow[i].to(exact[i]) - exact[i]) / length
            allowed = min(0.1, 1000 * torch.finfo(given[i].dtype).eps)
            made.verdict = OK if made.error <= allowed else IMPRECISE
        yield made


def _difference(call: _Call, place: int, direction: torch.Tensor, cotangents: list) -> float:
    ends = []
    for sign in (1, -1):
        moved = call.leaves[place].detach() + sign * _STEP * direction
        results = call({place: moved.requires_grad_()})
        ends.append(sum(_dot(r.detach(), c) for r, c in zip(results, cotangents, strict=True)))
    return (ends[0] - ends[1]) / (2 * _STEP)


def _is_real_or_complex(value: object) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _copied(value: torch.Tensor, wide: bool) -> torch.Tensor:
    dtype = torch.complex128 if value.is_complex() else torch.float64
    return value.detach().to(dtype if wide else value.dtype, copy=True)


def _fresh(value: object) -> object:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _drawn(like: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(like.shape, generator=draw, dtype=like.dtype)
    return drawn.to(like.device)


def _dot(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.conj() * b).sum().real.item()


def _length(value: torch.Tensor) -> float:
    return torch.linalg.vector_norm(value).item()


# ---- around it ---------------------------------------------------------------------
def _functions_of(base: type) -> Iterator[type[Function]]:
    for cls in base.__subclasses__():
        if _is_the_programs(cls):
            yield cls
        yield from _functions_of(cls)


def _is_the_programs(cls: type) -> bool:
    return cls.__module__.partition(".")[0] not in ("torch", "torch_npu", "torchair", "op_tools")


def _separate_context(function: type[Function]) -> bool:
    """forward(*args) and setup_context(ctx, inputs, output), instead of forward(ctx, *args)."""
    return function.setup_context is not torch.autograd.function._SingleLevelFunction.setup_context


def _names(forward: Callable, with_context: bool, count: int) -> list[str]:
    names = list(inspect.signature(forward).parameters)[1 if with_context else 0 :]
    return [names[i] if i < len(names) else f"argument {i}" for i in range(count)]


def _restore(owner: type, name: str, known: object) -> None:
    if known is None:
        delattr(owner, name)
    else:
        setattr(owner, name, known)


@contextlib.contextmanager
def _random_states_kept() -> Iterator[None]:
    here = torch.accelerator.current_accelerator()
    device = torch.get_device_module(here.type) if here is not None else None
    states = torch.get_rng_state(), device.get_rng_state() if device is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        if device is not None:
            device.set_rng_state(states[1])


@contextlib.contextmanager
def _no_autocast() -> Iterator[None]:
    with torch._C._DisableAutocast():
        yield


def _place() -> str:
    """The program's line: the innermost frame that is neither ours nor PyTorch's."""
    for frame in reversed(traceback.extract_stack()):
        if not re.search(r"[/\\](torch|torch_npu|op_tools)[/\\]", frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return ""
