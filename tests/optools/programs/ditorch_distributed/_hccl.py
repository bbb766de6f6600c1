# SPDX-License-Identifier: Apache-2.0
import torch, torch.distributed as dist, ditorch, os
place = "file://" + os.path.abspath("meeting")
for ask in (lambda: dist.init_process_group("hccl", init_method=place, rank=0, world_size=1),
            lambda: dist.init_process_group(backend="cpu:gloo,npu:hccl", init_method=place, rank=0, world_size=1)):
    try:
        ask()
        assert dist.is_backend_available("hccl")
        dist.destroy_process_group()
    except ValueError as error:
        assert not dist.is_backend_available("hccl")
        for word in ("hccl", "no such backend", 'backend="nccl"'):
            assert word in str(error), error
dist.init_process_group("nccl", init_method=place, rank=0, world_size=1)
try:
    dist.new_group([0], backend="hccl")
except ValueError as error:
    assert "no such backend" in str(error)
