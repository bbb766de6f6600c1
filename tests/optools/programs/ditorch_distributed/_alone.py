# SPDX-License-Identifier: Apache-2.0
import os, torch, torch.distributed as dist
names = ("allreduce_", "send", "recv_any_source_")
def dumped(): return [torch._C._dispatch_dump("c10d::" + name) for name in names]
before = dumped(), list(dist.Backend.backend_capability["gloo"]), dict(dist.Backend.default_device_backend_map)
import warnings
warnings.simplefilter("error")
import ditorch
warnings.resetwarnings()
dist.init_process_group("nccl", init_method="file://" + os.path.abspath("meeting"), rank=0, world_size=1)
if ditorch.device_type != "cpu":
    try:
        dist.recv(torch.ones(1, device="cuda"))
        raise SystemExit("received")
    except RuntimeError as error:
        assert "src=" in str(error), error
dist.destroy_process_group()
ditorch.disable()
assert before == (dumped(), dist.Backend.backend_capability["gloo"], dist.Backend.default_device_backend_map)
