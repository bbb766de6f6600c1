# SPDX-License-Identifier: Apache-2.0
"""One graph of AOTAutograd: report, dumps, passes, then a program that runs it."""

import contextlib
import itertools
import logging
import os
import sys
import threading
import time
import weakref

import torch

from torchair import _verdicts

logger = logging.getLogger("torchair")
if logger.level == logging.NOTSET:
    logger.setLevel(logging.ERROR)  # TorchAir's: lines below it are asked for
_numbers = itertools.count()
_COPY = torch.ops.aten.copy_.default
# Called with every graph of every backend: (module, phase, number).
observers = []
# Objects that run compiled graphs, as long as they can be called.
runners = weakref.WeakSet()
_thread = threading.local()
EVENT = 35  # TorchAir's level of lines that tell times
logging.addLevelName(EVENT, "EVENT")


@contextlib.contextmanager
def without_recording():
    """Graphs that this thread runs in the block are neither recorded nor replayed."""
    before = getattr(_thread, "plain", False)
    _thread.plain = True
    try:
        yield
    finally:
        _thread.plain = before


class Compiler:
    def __init__(
        self, config, strict: bool = False, observer=None, recordings: int = 0,
        package: str = "torchair",
    ):  # fmt: skip
        """`recordings`: so many sizes are foreseen, all of them are kept. `package`: whose
        register_replacement counts."""
        self.config = config
        self._package = package
        self._recordings = recordings
        self._strict = strict
        self.mutates = False  # some graph writes an input
        self._observer = observer  # called with every graph: (module, phase, number)

    @property
    def patterns(self):
        """The registered replacements; None while the program has registered none."""
        loaded = sys.modules.get("torchair._patterns")  # it loads Inductor
        return None if loaded is None else loaded.REGISTERED[self._package]

    def compile(self, module: torch.fx.GraphModule, example_inputs, *, phase: str):
        number, began = next(_numbers), time.perf_counter()
        debug = self.config.debug
        _name_ignored(self.config)
        metadata = getattr(torch._guards.TracingContext.try_get(), "fw_metadata", None)
        self.mutates |= bool(getattr(metadata, "mutated_inp_runtime_indices", ()))
        self.mutates |= any(n.target is _COPY for n in module.graph.nodes)
        if phase == "backward" and metadata is not None:
            # No program writes over what forward saved: backward(retain_graph=True) may come again.
            metadata.bw_donated_idxs = []
        for observer in (*observers, self._observer):
            if observer is not None:
                observer(module, phase, number)
        if self._strict:
            _verdicts.refuse_unsupported(module, example_inputs)
        if debug.fx_summary.type and self._report(module, example_inputs):
            return boxed(module)
        if debug.data_dump.type:
            from torchair import _data_dump

            return _data_dump.dumping(module, self.config, number)
        from torchair import _passes

        self._dump(module, "original", number)
        module = _passes.run(module, example_inputs, self.config, self.patterns)
        self._dump(module, "optimized", number)
        if debug.run_eagerly:
            return boxed(module)
        from torchair._lower import lower

        if self.config.npugraphex_config.force_recapture:
            return _unrecorded(lower(module))
        limit = max(debug.aclgraph.static_capture_size_limit.raw, self._recordings)
        run = _runner(lower(module), phase, limit)
        taken = (time.perf_counter() - began) * 1e6
        logger.log(EVENT, "graph %d (%s): compiled in %.0f us", number, phase, taken)
        return run

    def partition(self, joint: torch.fx.GraphModule, inputs, **kwargs):
        """Forward and backward of a joint graph, after the replacements for joint graphs."""
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        if self.patterns is not None and self.config.experimental_config.pattern_fusion_pass:
            self.patterns.apply_to_joint(joint)
        return min_cut_rematerialization_partition(joint, inputs, **kwargs)

    def _report(self, module, example_inputs) -> bool:
        """Writes the summary; True when the graph is to run eagerly after it."""
        from torchair import fx_summary

        if self.config.mode.value != "max-autotune":
            logger.warning("fx_summary: only mode max-autotune writes a summary")
            return False
        folder = self.config.debug.fx_summary._path.value or ""
        fx_summary.write(module, example_inputs, os.path.join(folder, fx_summary.file_name()))
        skips = bool(self.config.debug.fx_summary.skip_compile)
        if skips:
            logger.warning("fx_summary: skip_compile is on, the graph runs eagerly")
        return skips

    def _dump(self, module, stage: str, number: int) -> None:
        dump = self.config.debug.graph_dump
        if dump.type:
            from torchair import _graph_dump

            _graph_dump.write(module, dump.type.value, dump.path.value, stage, number)


# Options of Ascend's engine: checked, and without effect here.
_WITHOUT_EFFECT = (
    "aoe_config.", "dump_config.", "fusion_config.", "ge_config.", "debug.deadlock_check",
    "debug.aclgraph.clone_input", "debug.aclgraph.remove_cat_ops",
    "debug.aclgraph.disable_mempool_reuse_in_same_fx", "export.experimental.",
    "experimental_config.aclgraph.", "experimental_config.cc_parallel_enable",
    "experimental_config.memory_efficiency", "experimental_config.static_model_ops_lower_limit",
    "experimental_config.npu_fx_pass", "experimental_config.topology_sorting_strategy",
    "experimental_config.enable_ref_data", "experimental_config.enable_view_optimize",
    "experimental_config.tiling_schedule_optimize", "experimental_config.frozen_parameter",
    "npugraphex_config.capture_error_mode",
    "npugraphex_config.disable_static_kernel_compile_cache",
)  # fmt: skip
named: set[str] = set()  # options and names with a line in the log


def _name_ignored(config) -> None:
    """A debug line, once, for each option that is set and means nothing here."""
    for name, _ in config.changed():
        if name.startswith(_WITHOUT_EFFECT) and name not in named:
            named.add(name)
            logger.debug("option %s is accepted and has no effect on this engine", name)


def boxed(module):
    """`module` called with one list, which is emptied."""

    def run(args: list):
        given = list(args)
        args.clear()
        return module(*given)

    run._boxed_call = True
    return run


def _unrecorded(program):
    """Every call runs the program again, so that faults of a recording show in the difference."""

    def run(args: list):
        return program.run(args)

    run._boxed_call = True
    return run


def _timed(run, args: list, name: str):
    began = time.perf_counter()
    try:
        return run(args)
    finally:
        logger.log(EVENT, "%s: ran in %.0f us", name, (time.perf_counter() - began) * 1e6)


def _runner(program, phase: str, limit: int):
    from torch_npu import _C

    replayer = _C._GraphReplayer(program, limit)
    run_program = replayer.run
    name = f"npu_fx_compiler {phase}"

    def run(args: list):
        if torch.autograd.profiler._is_profiler_enabled:
            with torch.profiler.record_function(name):
                return run_program(args)
        if getattr(_thread, "plain", False):
            return program.run(args)
        if logger.isEnabledFor(EVENT):
            return _timed(run_program, args, name)
        return run_program(args)

    run._boxed_call = True
    run.program, run.replayer = program, replayer
    runners.add(run)
    return run
