# SPDX-License-Identifier: Apache-2.0
"""torchrun on two machines: two namespaces of networks and processes, joined by a virtual cable."""

import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from programs import program

PROGRAM = program(__file__, "_program")


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """(the commands that start a program on each machine, the first one's address)"""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("ip (iproute2) or unshare (util-linux) is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    tag = uuid.uuid4().hex[:6]
    names = [f"npu{tag}{side}" for side in "ab"]
    cables = [f"v{tag}{side}" for side in "ab"]
    try:
        try:
            for name in names:
                run("ip", "netns", "add", name)
            run("ip", "link", "add", cables[0], "netns", names[0], "type", "veth",
                "peer", "name", cables[1], "netns", names[1])  # fmt: skip
            for i, (name, cable) in enumerate(zip(names, cables, strict=True)):
                run("ip", "-n", name, "addr", "add", f"10.213.7.{i + 1}/24", "dev", cable)
                run("ip", "-n", name, "link", "set", cable, "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
            run(
                "ip",
                "netns",
                "exec",
                names[0],
                "unshare",
                "--pid",
                "--fork",
                "--mount-proc",
                "true",
            )
        except subprocess.CalledProcessError as error:
            pytest.skip(f"this system allows no namespaces: {error.stderr.strip()}")
        yield (
            [
                ["ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "env", f"GLOO_SOCKET_IFNAME={cable}"]
                for name, cable in zip(names, cables, strict=True)
            ],
            "10.213.7.1",
        )  # fmt: skip
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def torchrun(machines, folder: Path, argument: str) -> str:
    prefixes, address = machines
    (folder / "program.py").write_text(PROGRAM)
    started = [
        subprocess.Popen(
            [*prefix, sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}",
             "--nproc_per_node=2", f"--master-addr={address}", "--master-port=29517", "program.py", argument],
            cwd=folder, env={**os.environ, "NPU_HOST_DEVICES": "2", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL if argument == "dies" else subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node, prefix in enumerate(prefixes)
    ]  # fmt: skip
    try:
        if argument == "dies":  # the agents wait minutes for the rank that is stopped
            files = [folder / f"said_{rank}" for rank in (0, 1)]
            until = time.monotonic() + 150
            while not all(file.exists() for file in files) and time.monotonic() < until:
                time.sleep(0.1)
            return "".join(file.read_text() for file in files if file.exists())
        said = ""
        for process in started:
            said += process.communicate(timeout=150)[0]
            assert process.returncode == 0, said
        return said
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_torchrun_on_two_machines(machines, tmp_path):
    said = torchrun(machines, tmp_path, "ends")
    assert all(f"rank {rank} of 4: fine" in said for rank in range(4)), said


def test_a_rank_that_stops_on_the_other_machine_is_named(machines, tmp_path):
    said = torchrun(machines, tmp_path, "dies")
    for rank in (0, 1):
        assert f"rank {rank} says: hccl: " in said, said
    assert "Rank 3 does not answer" in said, said
