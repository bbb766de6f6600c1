# SPDX-License-Identifier: Apache-2.0
"""What all tools share: start, stop, lists, names."""

from __future__ import annotations

import atexit
import os
import re
import sys
from collections.abc import Callable

from op_tools.core import (
    _C,
    api_names,
    module_paths,
    options,
    process_exit,
    unseen,
    variables,
)
from op_tools.core.operator_lists import Lists
from op_tools.core.warning import warn

PHASES = ("forward", "backward", "optimizer")
_running: list[OpTool] = []
# Called as f(running, started=tool or None) whenever a tool has started or stopped.
on_change: list[Callable[..., None]] = []


class OpTool:
    """A tool on the core. A sub-class makes the core's part and reports what it found."""

    # In variables: OP_<family>_LIST.
    family = ""
    # What else it reads: OP_<family>_<each>.
    variables: tuple[str, ...] = ()
    # Its name in apply_feature(); empty: it cannot be applied to single functions.
    feature = ""
    # Computes something else than PyTorch would: self-check runs it with no operator selected.
    changes_results = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "family" in vars(cls):
            variables.add_tool(cls.family, cls.variables)

    def __init__(self) -> None:
        self._core: _C.Tool | None = None
        self._stopped: _C.Tool | None = None
        self._lists: Lists | None = None
        self._verbose = ""
        # Beyond ditorch: set before start().
        self.phases: tuple[str, ...] = PHASES
        self.steps: tuple[int, int] | None = None
        self.modules: str | None = None  # a regular expression of module paths
        self.module_paths = False  # know the paths, whether or not they select
        self.thread: int | None = None  # _C.thread_number() of the only thread to watch
        self.call_sites = False
        # Of apply_feature(): names of the calls this tool acts on, and on nothing else.
        self.applied: set[str] | None = None

    # ---- for sub-classes -----------------------------------------------------
    def make_core(self) -> _C.Tool:
        raise NotImplementedError

    def report(self) -> None:
        """Prints what was found; called once the tool has stopped."""

    def conclude(self) -> None:
        """After report(): raises, where the user asked for that."""

    @property
    def _last(self) -> _C.Tool:
        """The core's part of the last run."""
        if self._stopped is None:
            raise RuntimeError(f"{type(self).__name__} has found nothing yet: stop() it first")
        return self._stopped

    def _save(self, what: str, save: Callable[[], str]) -> bool:
        """A file of report()'s. No disk's fault ends the program that is being watched."""
        try:
            print(f"{what} saved to {save()}")
        except OSError as error:
            print(f"{type(self).__name__}: {what} could not be saved: {error}")
            return False
        return True

    # ---- ditorch's forms; see ditorch_compat/api_hooks.py ----------------------
    @property
    def speaks(self) -> bool:
        """Does a hook follow each API call?"""
        return bool(self._verbose)

    @property
    def takes_kernels(self) -> bool:
        """Or do its hooks do all there is to do?"""
        return True

    @property
    def is_running(self) -> bool:
        return self._core is not None

    # ---- life ----------------------------------------------------------------
    def start(self) -> OpTool:
        if self._core is not None:
            raise RuntimeError(f"{type(self).__name__} was started already: stop() it first")
        self._verbose = options.verbose()
        self._lists = Lists(self.family)
        self.gave_up = False
        self._check_settings()
        variables.check()
        core = self.make_core()
        try:
            self._select(core)
            if self._needs_apis:
                api_names.listen(self._on_api)
            if self._wants_modules:
                module_paths.listen(self._on_module)
            self._waiting = _C.calls_without_backward()
            core.start()
        except BaseException:
            self._forget()
            raise
        self._core = core
        _running.append(self)
        _tell(started=self)
        return self

    def stop(self) -> None:
        core, self._core = self._core, None
        if core is None:
            return
        self._stopped = core
        waiting = self._calls_without_backward()
        if self in _running:
            _running.remove(self)
        try:
            _tell()
            was_running = core.stop()
        finally:
            self._forget()
        if was_running:
            self._report(waiting)
            self.conclude()

    def _calls_without_backward(self) -> int:
        """Forward calls it saw whose graph is alive and that no backward() came for."""
        if "backward" not in self.phases or "forward" not in self.phases or process_exit.now:
            return 0
        (before, then), (calls, now) = self._waiting, _C.calls_without_backward()
        return max(calls - before, 0) if then == now else calls

    def _report(self, waiting: int) -> None:
        try:
            if self.takes_kernels and not self.speaks and self.applied is None:
                name = type(self).__name__
                if not self._last.saw:
                    print(f"{name}: {unseen.why_nothing(self)}")
                    return
                if waiting:
                    print(f"{name}: {unseen.no_backward(waiting)}")
            self.report()
        except Exception as error:  # a closed stdout, or a fault of ours
            warn(f"{type(self).__name__} could not report: {type(error).__name__}: {error}")

    end = stop

    def __enter__(self) -> OpTool:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- selection -----------------------------------------------------------
    @property
    def _needs_apis(self) -> bool:
        if self.applied is not None:
            return False
        return self._lists.needs_apis or self.speaks

    @property
    def _wants_modules(self) -> bool:
        return self.modules is not None or self.module_paths

    def _check_settings(self) -> None:
        name = type(self).__name__
        for phase in self.phases:
            if phase not in PHASES:
                raise ValueError(f"{name}.phases: {phase!r} is not one of {', '.join(PHASES)}")
        try:
            self._module_pattern = re.compile(self.modules or "")
        except re.error as error:
            raise ValueError(
                f"{name}.modules: {self.modules!r} is no regular expression: {error}"
            ) from None

    def _select(self, core: _C.Tool) -> None:
        self._tool = core
        core.label = type(self).__name__
        self.devices = options.devices()
        self._lists.apply(core, kernels=self.takes_kernels, applied=self.applied is not None)
        core.wants_sites = self.call_sites or bool(self._verbose)
        core.restrict(
            phases=sum(1 << PHASES.index(phase) for phase in set(self.phases)),
            steps=self.steps or options.steps(f"OP_{self.family}_STEPS") or (0, 2**62),
            by_module=self.modules is not None,
            thread=self.thread or 0,
        )

    def _on_api(self, name: str, number: int) -> None:
        lists, name = self._lists, api_names.plain(name)
        refused = any(c.fullmatch(name) for _, c in lists.refused.apis)
        self._tool.set_api(number, lists.wanted.match_api(name), refused)

    def _on_module(self, path: str, number: int) -> None:
        if self.modules is not None:
            self._tool.set_module(number, bool(self._module_pattern.fullmatch(path)))

    def _forget(self) -> None:
        api_names.forget(self._on_api)
        module_paths.forget(self._on_module)


def _tell(started: OpTool | None = None) -> None:
    for observer in on_change:
        observer(_running, started=started)


def _after_fork() -> None:
    """A child process starts with no tools: what the parent's gather is the parent's."""
    for tool in _running:
        tool._core = None
    _running.clear()
    _tell()
    api_names.after_fork()
    module_paths.after_fork()
    _C.drop_taps()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _stop_all() -> None:
    process_exit.now = True
    for tool in list(reversed(_running)):
        try:
            tool.stop()
        except Exception as error:  # the others still have something to tell
            name = type(tool).__name__
            print(f"{name} could not stop: {type(error).__name__}: {error}", file=sys.stderr)
