# SPDX-License-Identifier: Apache-2.0
"""profile, its schedule, and the handler that writes Ascend's folder."""

from __future__ import annotations

import time
import warnings

import torch
from torch.profiler import ProfilerActivity

from torch_npu.npu import mstx

from . import folder
from .experimental_config import ExportType, ProfilerLevel, _ExperimentalConfig


def supported_activities() -> set:
    return {ProfilerActivity.CPU, ProfilerActivity.PrivateUse1}


def schedule(
    *,
    wait: int = 0,
    active: int = 1,
    warmup: int = 0,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
):
    """torch.profiler.schedule; numbers that make no sense are replaced, with a warning."""
    given = {
        "wait": (wait, 0),
        "active": (active, 1),
        "warmup": (warmup, 0),
        "repeat": (repeat, 0),
        "skip_first": (skip_first, 0),
        "skip_first_wait": (skip_first_wait, 0),
    }
    numbers = {}
    for name, (value, least) in given.items():
        good = isinstance(value, int) and not isinstance(value, bool) and value >= least
        numbers[name] = value if good else least
        if not good:
            warnings.warn(
                f"torch_npu.profiler.schedule: {name}={value!r} is no number from {least} on; "
                f"{least} is used.",
                stacklevel=2,
            )
    return torch.profiler.schedule(**numbers)


class profile(torch.profiler.profile):
    """torch.profiler.profile with CPU and NPU as activities unless told otherwise."""

    _running: profile | None = None  # torch lets a second one end the first without a word

    def __init__(
        self,
        *,
        activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config=None,
        **others,
    ) -> None:
        self.npu_config = experimental_config
        if isinstance(experimental_config, _ExperimentalConfig):
            for_torch = None
        elif experimental_config is None:
            self.npu_config, for_torch = _ExperimentalConfig(), None
        elif isinstance(experimental_config, torch._C._profiler._ExperimentalConfig):
            self.npu_config, for_torch = _ExperimentalConfig(), experimental_config
        else:
            raise TypeError(
                "torch_npu.profiler.profile: experimental_config is a "
                f"{type(experimental_config).__name__}, not a torch_npu.profiler._ExperimentalConfig."
            )
        wanted = set(supported_activities() if activities is None else activities)
        if not wanted:
            raise ValueError("torch_npu.profiler.profile: activities is empty: nothing to record.")
        if self.npu_config.profiler_level is ProfilerLevel.Level_none:
            wanted.discard(ProfilerActivity.PrivateUse1)
        if schedule is not None and not callable(schedule):
            raise TypeError(
                f"torch_npu.profiler.profile: schedule={schedule!r} cannot be called. "
                "Make one with torch_npu.profiler.schedule(wait=…, warmup=…, active=…)."
            )
        super().__init__(
            activities=wanted or {ProfilerActivity.CPU},
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=for_torch,
            **others,
        )
        self.npu_metadata: dict[str, str] = {}
        self._is_started = False
        self._is_torch = False
        self._began = 0.0

    def start(self) -> None:
        if self._is_started:
            raise RuntimeError(
                "torch_npu.profiler: this profile is running already; stop() it before start()."
            )
        if profile._running is not None:
            raise RuntimeError(
                "torch_npu.profiler: another profile is running, and there can be one at a time; "
                "stop() that one first."
            )
        self._began = time.time()
        super().start()
        self._is_started = True
        profile._running = self
        mstx.begin_profile(self.npu_config.mstx_domain_include, self.npu_config.mstx_domain_exclude)

    def stop(self) -> None:
        if not self._is_started:
            raise RuntimeError("torch_npu.profiler: stop() of a profile that was not started.")
        self._is_started = False
        profile._running = None
        try:
            super().stop()  # which may call on_trace_ready
        finally:
            mstx.end_profile()

    def step(self) -> None:
        if not self._is_started:
            raise RuntimeError(
                "torch_npu.profiler: step() of a profile that is not running; call it between start() "
                "and stop(), or inside `with`."
            )
        super().step()

    def start_trace(self) -> None:
        self._is_torch = True  # adds metadata of its own
        try:
            super().start_trace()
        finally:
            self._is_torch = False

    def add_metadata(self, key: str, value: str) -> None:
        self._note_metadata(key, value)
        if self.profiler is not None:
            super().add_metadata(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        self._note_metadata(key, value)
        if self.profiler is not None:
            super().add_metadata_json(key, value)

    def _note_metadata(self, key: str, value: str) -> None:
        if not self._is_torch:
            self.npu_metadata[key] = value

    def write_folder(self, parent, worker_name: str | None = None):
        """Writes the recording, not analysed yet, to a new folder below `parent`. Returns its path."""
        target = folder.new(parent, worker_name)
        with folder.whole(target / folder.TRACE) as unfinished:
            self.export_chrome_trace(str(unfinished))
        rank_id = folder.rank()
        folder.write_json(target / folder.info_name(rank_id), self._info(rank_id))
        if self.npu_metadata:
            folder.write_json(target / "profiler_metadata.json", self.npu_metadata)
        return target

    def _info(self, rank_id: int) -> dict:
        import torch_npu

        common = {
            "activities": sorted(
                "ProfilerActivity.NPU"
                if a is ProfilerActivity.PrivateUse1
                else f"ProfilerActivity.{a.name}"
                for a in self.activities
            ),
            "record_shapes": self.record_shapes,
            "profile_memory": self.profile_memory,
            "with_stack": self.with_stack,
            "with_flops": self.with_flops,
            "with_modules": self.with_modules,
        }
        return {
            "config": {
                "common_config": common,
                "experimental_config": self.npu_config.as_dict(),
            },
            "start_info": {
                "syscnt_enable": False,
                "collectionTimeBegin": f"{self._began * 1e6:.0f}",
            },
            "end_info": {"collectionTimeEnd": f"{time.time() * 1e6:.0f}"},
            "rank_id": rank_id,
            "mstx_ranges": mstx.seen(),
            "torch_version": torch.__version__,
            "torch_npu_version": torch_npu.__version__,
        }


def analyse(
    profiler_path: str,
    max_process_number: int | None = None,
    export_type=None,
) -> None:
    """Makes the results of profiles that were written without: of one folder, or of all in it.

    export_type: ExportType.Text, ExportType.Db or a list of both; None: the types chosen when recording.
    """
    from . import advice, database, tables
    from .trace import Trace

    wanted = _types(export_type) if export_type is not None else None
    for found in folder.profiles_in(profiler_path):
        types = wanted or _asked_for(found)
        trace = Trace(found / folder.TRACE)
        if ExportType.Text in types:
            tables.write(found, trace)
        if ExportType.Db in types:
            database.write(found, trace)
        advice.write(found, trace)


def _types(given) -> list[ExportType]:
    """A type, or a list of them, as members of ExportType or as their values."""
    listed = given if isinstance(given, (list, tuple, set)) else [given]
    found = []
    for one in listed:
        try:
            found.append(one if isinstance(one, ExportType) else ExportType(one))
        except ValueError:
            names = " or ".join(f"ExportType.{member.name}" for member in ExportType)
            raise TypeError(
                f"torch_npu.profiler.analyse: export_type={one!r} is not {names}."
            ) from None
    return found


def _asked_for(profile_folder) -> list[ExportType]:
    """As the program that was profiled asked."""
    config = folder.info_of(profile_folder).get("config", {})
    given = config.get("experimental_config", {}).get("_export_type") or ["text"]
    return [member for member in ExportType if member.value in given] or [ExportType.Text]


def tensorboard_trace_handler(
    dir_name: str | None = None,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
):
    """For on_trace_ready: writes each profile to a folder {worker}_{pid}_{time}_ascend_pt.

    async_mode makes the tables on a thread that is joined when the process ends.
    """
    parent = folder.writable(folder.chosen(dir_name))

    def handler(prof) -> None:
        if not isinstance(prof, profile):
            raise TypeError(
                "torch_npu.profiler.tensorboard_trace_handler: got a "
                f"{type(prof).__name__}; use it with torch_npu.profiler.profile."
            )
        written = prof.write_folder(parent, worker_name)
        if not analyse_flag:
            return
        if async_mode:
            import threading

            threading.Thread(target=analyse, args=(str(written),), name="npu-analyse").start()
        else:
            analyse(str(written))

    return handler
