# SPDX-License-Identifier: Apache-2.0
"""Profiles of a program that runs already, asked for by a file.

from torch_npu.profiler import dynamic_profile as dp
dp.init("folder")        # reads folder/profiler_config.json, and makes it when it is not there
for batch in loader:
    train(batch)
    dp.step()            # whenever the file was changed, the next steps are profiled as it says
"""

from __future__ import annotations

import json
import threading
import warnings
from pathlib import Path

from torch.profiler import ProfilerActivity

from . import folder
from .experimental_config import AiCMetrics, ExportType, ProfilerLevel, _ExperimentalConfig
from .profiler import profile, schedule, tensorboard_trace_handler

__all__ = ["init", "start", "step"]

FILE = "profiler_config.json"
DEFAULTS = {
    "activities": ["CPU", "NPU"],
    "prof_dir": "./",
    "analyse": False,
    "record_shapes": False,
    "profile_memory": False,
    "with_stack": False,
    "with_flops": False,
    "with_modules": False,
    "active": 1,
    "warmup": 0,
    "start_step": 0,
    "is_rank": False,
    "rank_list": [],
    "experimental_config": {
        "profiler_level": "Level0",
        "aic_metrics": "AiCoreNone",
        "l2_cache": False,
        "op_attr": False,
        "gc_detect_threshold": None,
        "data_simplification": True,
        "record_op_args": False,
        "export_type": ["text"],
        "mstx": False,
    },
    "metadata": {},
}
_ACTIVITIES = {"CPU": ProfilerActivity.CPU, "NPU": ProfilerActivity.PrivateUse1}


class ConfigError(ValueError):
    """The file holds a wrong setting."""


def _member(kind, text, name: str):
    for member in kind:
        if text in {member.name, member.value, f"{kind.__name__}.{member.name}"}:
            return member
    raise ConfigError(f"{name}: {text!r} is not one of {', '.join(m.name for m in kind)}")


def _number(config: dict, name: str, least: int) -> int:
    value = config[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{name}: {value!r} is no number from {least} on")
    return value


def _experimental(given: dict) -> _ExperimentalConfig:
    if not isinstance(given, dict):
        raise ConfigError(f"experimental_config: {given!r} is no JSON object")
    known = DEFAULTS["experimental_config"]
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise ConfigError(f"experimental_config: {unknown[0]!r} is not one of {', '.join(known)}")
    options = {key: given.get(key, default) for key, default in known.items()}
    limit = options["gc_detect_threshold"]
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float))):
        raise ConfigError(f"gc_detect_threshold: {limit!r} is no number of milliseconds")
    options["profiler_level"] = _member(ProfilerLevel, options["profiler_level"], "profiler_level")
    options["aic_metrics"] = _member(AiCMetrics, options["aic_metrics"], "aic_metrics")
    types = options["export_type"]
    types = types if isinstance(types, list) else [types]
    options["export_type"] = [_member(ExportType, t, "export_type") for t in types]
    return _ExperimentalConfig(**options)


def read(path: Path) -> dict:
    """The file's content over the defaults. Raises ConfigError."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(str(error)) from None
    if not isinstance(given, dict):
        raise ConfigError("it holds no JSON object")
    return {**DEFAULTS, **given}


def _make(config: dict) -> profile | None:
    """The profile a file asks for; None when it is not for this rank."""
    if config["is_rank"] and folder.rank() not in config["rank_list"]:
        return None
    unknown = [name for name in config["activities"] if name not in _ACTIVITIES]
    if unknown:
        raise ConfigError(f"activities: {unknown[0]!r} is neither CPU nor NPU")
    made = profile(
        activities=[_ACTIVITIES[name] for name in config["activities"]] or None,
        schedule=schedule(
            wait=0,
            warmup=_number(config, "warmup", 0),
            active=_number(config, "active", 1),
            repeat=1,
        ),
        on_trace_ready=tensorboard_trace_handler(
            config["prof_dir"], analyse_flag=bool(config["analyse"])
        ),
        experimental_config=_experimental(config["experimental_config"]),
        **{
            key: bool(config[key])
            for key in (
                "record_shapes",
                "profile_memory",
                "with_stack",
                "with_flops",
                "with_modules",
            )
        },
    )
    for key, value in dict(config["metadata"]).items():
        made.add_metadata(str(key), str(value))
    return made


class _Dynamic:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.path: Path | None = None
        self.changed = 0  # when the file was, as last seen
        self.steps = 0
        self.running: profile | None = None
        self.left = 0
        self.waiting: dict | None = None  # a config whose start_step is to come

    def init(self, path) -> None:
        parent = folder.writable(Path(path))
        with self.lock:
            self.path = parent / FILE
            if not self.path.exists():
                folder.write_json(self.path, DEFAULTS)
            self.changed = self._stamp()
            self.steps = 0

    def _stamp(self) -> int:
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return self.changed

    def begin(self, config: dict) -> None:
        made = _make(config)
        if made is not None:
            made.start()
            self.running = made
            self.left = config["warmup"] + config["active"]

    def try_to(self, act, path: Path) -> None:
        """A file with a mistake in it does not end a program that trains."""
        try:
            act()
        except Exception as error:  # whatever the file holds
            known = isinstance(error, (ConfigError, folder.FolderError))
            why = error if known else f"{type(error).__name__}: {error}"
            warnings.warn(
                f"torch_npu.profiler.dynamic_profile: {path}: {why}. No profile is made.",
                stacklevel=4,
            )

    def step(self) -> None:
        with self.lock:
            if self.path is None:
                raise RuntimeError(
                    "torch_npu.profiler.dynamic_profile: step() before init(folder) or start(file)."
                )
            self.steps += 1
            if self.running is not None:
                self.running.step()
                self.left -= 1
                if self.left <= 0:
                    self.running.stop()
                    self.running = None
                return
            now = self._stamp()
            if now != self.changed:
                self.changed = now
                self.try_to(self._take_file, self.path)
            if self.waiting is not None and self.steps >= self.waiting["start_step"]:
                config, self.waiting = self.waiting, None
                self.try_to(lambda: self.begin(config), self.path)

    def _take_file(self) -> None:
        config = read(self.path)
        first = _number(config, "start_step", 0)
        if 0 < first < self.steps:
            raise ConfigError(f"start_step: step {first} is over, this is step {self.steps}")
        self.waiting = config

    def start(self, path) -> None:
        with self.lock:
            if self.running is not None:
                raise RuntimeError(
                    "torch_npu.profiler.dynamic_profile: start() while a profile is being taken."
                )
            if path is not None:
                self.path = Path(path)
                self.changed = self._stamp()
            if self.path is None:
                raise RuntimeError(
                    "torch_npu.profiler.dynamic_profile: start() needs the path of a JSON file."
                )
            self.try_to(lambda: self.begin(read(self.path)), self.path)


_dynamic = _Dynamic()


def init(path: str) -> None:
    """Watches path/profiler_config.json; the file is made with the defaults when it is not there."""
    _dynamic.init(path)


def step() -> None:
    """At the end of each step of the program."""
    _dynamic.step()


def start(config_path: str | None = None) -> None:
    """Profiles from here on, as the file says; without one, as the file of init() says."""
    _dynamic.start(config_path)
