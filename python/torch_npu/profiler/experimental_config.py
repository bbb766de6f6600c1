# SPDX-License-Identifier: Apache-2.0
"""Ascend's options of a profile: levels, counters, forms of results."""

from __future__ import annotations

import enum
import warnings


class ProfilerLevel(enum.Enum):
    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(enum.Enum):
    """Counters of Ascend's cores; no device here has them."""

    AiCoreNone = "ACL_AICORE_NONE"
    PipeUtilization = "ACL_AICORE_PIPE_UTILIZATION"
    ArithmeticUtilization = "ACL_AICORE_ARITHMETIC_UTILIZATION"
    Memory = "ACL_AICORE_MEMORY_BANDWIDTH"
    MemoryL0 = "ACL_AICORE_L0B_AND_WIDTH"
    ResourceConflictRatio = "ACL_AICORE_RESOURCE_CONFLICT_RATIO"
    MemoryUB = "ACL_AICORE_MEMORY_UB"
    L2Cache = "ACL_AICORE_L2_CACHE"
    MemoryAccess = "ACL_AICORE_MEMORY_ACCESS"


class ExportType(enum.Enum):
    Text = "text"
    Db = "db"


class HostSystem(enum.Enum):
    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


def supported_profiler_level() -> set[ProfilerLevel]:
    return set(ProfilerLevel)


def supported_ai_core_metrics() -> set[AiCMetrics]:
    return set(AiCMetrics)


def supported_export_type() -> set[ExportType]:
    return set(ExportType)


def _checked(name: str, value, kind: type, default):
    if value is None:
        return default
    if not isinstance(value, kind):
        names = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise TypeError(
            f"torch_npu.profiler._ExperimentalConfig: {name}={value!r} is not one of {names}."
        )
    return value


def _listed(name: str, value, kind: type, default: list) -> list:
    if value is None or value == []:
        return default
    given = value if isinstance(value, (list, tuple, set)) else [value]
    return [_checked(name, item, kind, None) for item in given]


class _ExperimentalConfig:
    """Options of Ascend's profiler. Options that no device here can measure are warned about once and ignored."""

    def __init__(
        self,
        profiler_level: ProfilerLevel = ProfilerLevel.Level0,
        aic_metrics: AiCMetrics = AiCMetrics.AiCoreNone,
        l2_cache: bool = False,
        msprof_tx: bool = False,
        mstx: bool = False,
        data_simplification: bool | None = None,
        record_op_args: bool = False,
        op_attr: bool = False,
        gc_detect_threshold: float | None = None,
        export_type=None,
        host_sys: list | None = None,
        mstx_domain_include: list | None = None,
        mstx_domain_exclude: list | None = None,
        sys_io: bool = False,
        sys_interconnection: bool = False,
    ) -> None:
        self.profiler_level = _checked(
            "profiler_level", profiler_level, ProfilerLevel, ProfilerLevel.Level0
        )
        self.aic_metrics = _checked("aic_metrics", aic_metrics, AiCMetrics, AiCMetrics.AiCoreNone)
        self.export_type = _listed("export_type", export_type, ExportType, [ExportType.Text])
        self.host_sys = _listed("host_sys", host_sys, HostSystem, [])
        if mstx_domain_include and mstx_domain_exclude:
            raise ValueError(
                "torch_npu.profiler._ExperimentalConfig: mstx_domain_include and mstx_domain_exclude "
                "were both given. Give one of them."
            )
        self.mstx_domain_include = list(mstx_domain_include or [])
        self.mstx_domain_exclude = list(mstx_domain_exclude or [])
        self.mstx = bool(mstx or msprof_tx)
        self.msprof_tx = self.mstx
        self.data_simplification = True if data_simplification is None else data_simplification
        self.l2_cache = l2_cache
        self.record_op_args = record_op_args
        self.op_attr = op_attr
        self.gc_detect_threshold = gc_detect_threshold
        self.sys_io = sys_io
        self.sys_interconnection = sys_interconnection
        self._say_what_is_left_out()

    def _say_what_is_left_out(self) -> None:
        asked = {
            "aic_metrics": self.aic_metrics is not AiCMetrics.AiCoreNone,
            "l2_cache": self.l2_cache,
            "record_op_args": self.record_op_args,
            "op_attr": self.op_attr,
            "gc_detect_threshold": self.gc_detect_threshold is not None,
            "host_sys": bool(self.host_sys),
            "sys_io": self.sys_io,
            "sys_interconnection": self.sys_interconnection,
        }
        absent = [name for name, is_asked in asked.items() if is_asked]
        if absent:
            warnings.warn(
                f"torch_npu.profiler: {', '.join(absent)}: not recorded by this device; "
                "the rest of the profile is.",
                stacklevel=3,
            )

    def as_dict(self) -> dict:
        """For profiler_info.json."""

        def plain(value):
            if isinstance(value, enum.Enum):
                return value.value
            return [plain(item) for item in value] if isinstance(value, list) else value

        return {f"_{name}": plain(value) for name, value in vars(self).items()}
