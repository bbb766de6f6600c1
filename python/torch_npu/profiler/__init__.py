# SPDX-License-Identifier: Apache-2.0
"""torch_npu.profiler: torch.profiler with Ascend's options, and Ascend's folder of results."""

from torch.profiler import ProfilerAction, ProfilerActivity

from .experimental_config import (
    AiCMetrics,
    ExportType,
    HostSystem,
    ProfilerLevel,
    _ExperimentalConfig,
    supported_ai_core_metrics,
    supported_export_type,
    supported_profiler_level,
)
from .profiler import (
    analyse,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "analyse",
    "profile",
    "schedule",
    "supported_activities",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
    "tensorboard_trace_handler",
]


def __getattr__(name: str):
    if name == "dynamic_profile":
        import importlib

        return importlib.import_module("torch_npu.profiler.dynamic_profile")
    raise AttributeError(f"module 'torch_npu.profiler' has no attribute '{name}'")
