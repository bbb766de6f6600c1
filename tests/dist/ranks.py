# SPDX-License-Identifier: Apache-2.0
"""Processes that stay: each test sends them a function, which every rank runs in its group."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch_npu"])


class Ranks:
    def __init__(self, size: int, backend: str | None, timeout: float, environment: dict) -> None:
        self.folder = tempfile.TemporaryDirectory()
        file = os.path.join(self.folder.name, "store")
        self.pipes, self.processes = [], []
        for rank in range(size):
            mine, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(
                target=_serve,
                args=(theirs, rank, size, backend, timeout, file, environment),
                daemon=True,
            )
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)

    def run(self, function: Callable, *args: object, limit: float = 40) -> list:
        """What each rank returned; an exception of any of them is raised here."""
        self.start(function, *args)
        return self.results(limit=limit)

    def start(self, function: Callable, *args: object) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.send((function, args))

    def results(self, ranks: list[int] | None = None, limit: float = 40) -> list:
        """All answers are taken before an error is raised: the next test gets its own."""
        found, errors = [], []
        for rank in range(len(self.pipes)) if ranks is None else ranks:
            assert self.pipes[rank].poll(limit), f"rank {rank} did not answer in {limit} s"
            kind, value = self.pipes[rank].recv()
            found.append(value)
            errors += [f"rank {rank}:\n{value}"] if kind == "error" else []
        assert not errors, "\n".join(errors)
        return found

    def close(self) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
        self.folder.cleanup()


@contextlib.contextmanager
def ranks(
    size: int, backend: str | None = "hccl", timeout: float = 30, **environment: str
) -> Iterator[Ranks]:
    made = Ranks(size, backend, timeout, environment)
    try:
        yield made
    finally:
        made.close()


def limit_calls(seconds: float) -> None:
    """What a collective of the default group may take from now on."""
    import torch
    import torch.distributed as dist

    group = dist.distributed_c10d._get_default_group()
    group._get_backend(torch.device("npu")).options._timeout = timedelta(seconds=seconds)


def _serve(
    pipe: Connection, rank: int, size: int, backend: str, timeout: float, file: str, env: dict
) -> None:
    os.environ.update(env)
    import torch
    import torch.distributed as dist
    import torch_npu  # noqa: F401

    torch.set_num_threads(1)
    torch.npu.set_device(rank % torch.npu.device_count())
    # A busy machine starts the processes one after the other: the short time is for what comes then.
    dist.init_process_group(
        backend,
        init_method=f"file://{file}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=max(timeout, 60)),
    )
    limit_calls(timeout)
    while (asked := pipe.recv()) is not None:
        function, args = asked
        try:
            answer = ("value", function(rank, size, *args))
            pickle.dumps(answer)
        except BaseException:
            answer = ("error", traceback.format_exc())
        pipe.send(answer)
    dist.destroy_process_group()
