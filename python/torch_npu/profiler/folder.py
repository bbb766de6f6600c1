# SPDX-License-Identifier: Apache-2.0
"""The folder a profile is written to: its name, and what lies in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

SUFFIX = "_ascend_pt"
TRACE = Path("FRAMEWORK") / "torch_trace.json"
_UNFINISHED = ".unfinished"
OUTPUT = "ASCEND_PROFILER_OUTPUT"


class FolderError(RuntimeError):
    """A folder cannot be written to, or is no profile."""


def chosen(dir_name) -> Path:
    """The folder for profiles: the caller's, ASCEND_WORK_PATH, or the current one."""
    if dir_name is not None and not isinstance(dir_name, (str, os.PathLike)):
        raise TypeError(f"torch_npu.profiler: dir_name={dir_name!r} is no path.")
    if dir_name:
        return Path(dir_name)
    work = os.environ.get("ASCEND_WORK_PATH")
    return Path(work) / "profiling_data" if work else Path.cwd()


def writable(folder: Path) -> Path:
    """The folder, made when it is not there; says at once when it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".opennpu_{os.getpid()}_{time.monotonic_ns()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise FolderError(
            f"torch_npu.profiler: cannot write profiles to {str(folder)!r}: {error.strerror}. "
            "Name a folder that you can write to."
        ) from None
    return folder


def new(parent: Path, worker: str | None) -> Path:
    """A fresh folder {worker}_{pid}_{time}_ascend_pt."""
    name = re.sub(r"[^\w.-]", "_", worker or socket.gethostname())
    while True:
        now = time.time()
        when = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
        folder = parent / f"{name}_{os.getpid()}_{when}{SUFFIX}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            time.sleep(0.001)
        except OSError as error:
            raise FolderError(
                f"torch_npu.profiler: cannot write the profile to {str(parent)!r}: {error.strerror}."
            ) from None


def rank() -> int:
    """Of this process in the job; -1 without one."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else -1


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Another name to write a file to, which becomes `path` when it is whole. A program that is ended
    while it writes, or a full disk, leaves no half file behind that name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}.*{_UNFINISHED}"):  # by a program that was ended
        left.unlink(missing_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{_UNFINISHED}")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_json(path: Path, content, indent: int | None = 1) -> None:
    with whole(path) as file:
        file.write_text(json.dumps(content, indent=indent), encoding="utf-8")


def info_name(rank_id: int) -> str:
    return "profiler_info.json" if rank_id < 0 else f"profiler_info_{rank_id}.json"


def info_of(profile: Path) -> dict:
    """What profiler_info.json says; empty where there is none that can be read."""
    for path in sorted(profile.glob("profiler_info*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(content, dict):
            return content
    return {}


def profiles_in(path) -> list[Path]:
    """The profile that a path is, or those right inside of it."""
    root = Path(path)
    if not root.is_dir():
        raise FolderError(f"torch_npu.profiler.analyse: {str(root)!r} is no folder.")
    if root.name.endswith(SUFFIX):
        return [root]
    found = sorted(p for p in root.iterdir() if p.name.endswith(SUFFIX) and p.is_dir())
    if not found:
        raise FolderError(
            f"torch_npu.profiler.analyse: no folder named *{SUFFIX} in {str(root)!r}."
        )
    return found
