# SPDX-License-Identifier: Apache-2.0
"""Puts npu into one of Lightning's connector modules, and into the strategies it chooses from.

Lightning asks for "cuda" by name where it means an accelerator. Each change acts where the
accelerator or the root device is npu; for any other what was there runs.
"""

from __future__ import annotations

import functools
import importlib
import sys
from types import ModuleType

import torch

from torch_npu._lightning import accelerator, precision
from torch_npu._lightning.naming import publish


def connect(module: ModuleType) -> None:
    if module.__name__.endswith(".connector"):
        root = module.__name__.removesuffix(".connector")
        connector, registry = module._Connector, module.ACCELERATOR_REGISTRY
        wrap_ddp = ("setup_module", "_determine_ddp_device_ids")
    else:
        root = module.__name__.partition(".trainer.")[0]
        connector, registry = module._AcceleratorConnector, module.AcceleratorRegistry
        wrap_ddp = ("_setup_model", "determine_ddp_device_ids")
    if "npu" in registry:
        return
    exceptions = importlib.import_module(f"{root}.utilities.exceptions")
    misconfigured = exceptions.MisconfigurationException
    strategies = importlib.import_module(f"{root}.strategies")
    made = accelerator.make(module.Accelerator, misconfigured)
    _choose(connector, made, strategies.SingleDeviceStrategy)
    _allow_fsdp(connector, made)
    precision.install(connector, made, module)
    _wrap_in_ddp(strategies.DDPStrategy, *wrap_ddp)
    _mesh_for_fsdp(strategies.FSDPStrategy)
    _keep_random_states(root)
    made.register_accelerators(registry)
    publish(made, importlib.import_module(f"{root}.accelerators"))


def _choose(connector: type, made: type, single_device: type) -> None:
    """`auto` finds npu where it would have taken the CPU; one npu is a strategy on that npu."""
    auto, strategy = connector._choose_auto_accelerator, connector._choose_strategy

    def choose_auto_accelerator() -> str:
        found = auto()
        return "npu" if found == "cpu" and made.is_available() else found

    @functools.wraps(strategy)
    def choose_strategy(self):
        mine = isinstance(self.accelerator, made)
        if mine and self._num_nodes_flag == 1 and len(self._parallel_devices) == 1:
            return single_device(device=self._parallel_devices[0])
        return strategy(self)

    connector._choose_auto_accelerator = staticmethod(choose_auto_accelerator)
    connector._choose_strategy = choose_strategy


def _allow_fsdp(connector: type, made: type) -> None:
    """Lightning refuses it for every accelerator but the one called "cuda"."""
    original = connector._check_strategy_and_fallback

    @functools.wraps(original)
    def check_strategy_and_fallback(self) -> None:
        if not isinstance(self.accelerator, made):
            return original(self)
        asked, self._accelerator_flag = self._accelerator_flag, "cuda"
        try:
            return original(self)
        finally:
            self._accelerator_flag = asked

    connector._check_strategy_and_fallback = check_strategy_and_fallback


def _wrap_in_ddp(strategy: type, wrap: str, device_ids: str) -> None:
    """Lightning wraps inside a stream of torch.cuda, and has communication hooks for it only."""
    original = getattr(strategy, wrap)

    @functools.wraps(original)
    def wrapped(self, module):
        if self.root_device.type != "npu":
            return original(self, module)
        ids = getattr(self, device_ids)()
        return torch.nn.parallel.DistributedDataParallel(
            module=module, device_ids=ids, **self._ddp_kwargs
        )

    setattr(strategy, wrap, wrapped)
    hooks = getattr(strategy, "_register_ddp_hooks", None)
    if hooks is None:
        return
    register = sys.modules[strategy.__module__]._register_ddp_comm_hook

    @functools.wraps(hooks)
    def register_ddp_hooks(self) -> None:
        if self.root_device.type != "npu":
            return hooks(self)
        return register(
            model=self.model,
            ddp_comm_state=self._ddp_comm_state,
            ddp_comm_hook=self._ddp_comm_hook,
            ddp_comm_wrapper=self._ddp_comm_wrapper,
        )

    strategy._register_ddp_hooks = register_ddp_hooks


def _mesh_for_fsdp(strategy: type) -> None:
    """A mesh that is given by its sizes is made of cuda devices."""
    original = strategy.setup_environment

    @functools.wraps(original)
    def setup_environment(self) -> None:
        options = getattr(self, "kwargs", None)
        if options is None:
            options = self._fsdp_kwargs
        sizes = options.get("device_mesh")
        if not isinstance(sizes, tuple) or self.root_device.type != "npu":
            return original(self)
        del options["device_mesh"]
        original(self)
        options["device_mesh"] = torch.distributed.device_mesh.init_device_mesh("npu", sizes)
        return None

    strategy.setup_environment = setup_environment


def _keep_random_states(root: str) -> None:
    """Processes that Lightning starts, and isolate_rng, keep the numbers of cuda devices only."""
    fabric = (
        "lightning_fabric" if root.startswith(("pytorch_", "lightning_")) else "lightning.fabric"
    )
    seed = importlib.import_module(f"{fabric}.utilities.seed")
    if not hasattr(seed._collect_rng_states, "__wrapped__"):
        _wrap_random_states(seed)
    users = ("utilities.seed", "strategies.launchers.multiprocessing")
    for name in (*(f"{root}.{user}" for user in users), f"{fabric}.{users[1]}"):
        user = importlib.import_module(name)
        if hasattr(user, "_collect_rng_states"):
            user._collect_rng_states = seed._collect_rng_states
            user._set_rng_states = seed._set_rng_states


def _wrap_random_states(seed: ModuleType) -> None:
    collect, restore = seed._collect_rng_states, seed._set_rng_states

    @functools.wraps(collect)
    def collect_rng_states(include_cuda: bool = True) -> dict:
        states = collect(include_cuda)
        if include_cuda and torch.npu.is_initialized():
            states["torch.npu"] = torch.npu.get_rng_state_all()
        return states

    @functools.wraps(restore)
    def set_rng_states(states: dict) -> None:
        restore(states)
        if "torch.npu" in states:
            torch.npu.set_rng_state_all(states["torch.npu"])

    seed._collect_rng_states, seed._set_rng_states = collect_rng_states, set_rng_states
