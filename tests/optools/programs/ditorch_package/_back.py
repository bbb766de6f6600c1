# SPDX-License-Identifier: Apache-2.0
import sys, types
import torch
if sys.argv[1] == "npu":
    import torch_npu
import torch.distributed, torch.cuda.nvtx, torch._dynamo
def everything():
    owners = [torch, torch.cuda, torch.Tensor, torch.nn.Module, torch.cuda.memory, torch.cuda.random, torch.cuda.streams,
              torch.cuda.amp, torch.cuda.nvtx, torch.amp, torch.amp.autocast_mode, torch.amp.autocast_mode.autocast,
              torch.amp.GradScaler, torch.fft, torch.sparse, torch.signal.windows, torch.distributed,
              torch.distributed.distributed_c10d, torch.UntypedStorage, torch.TypedStorage, torch.serialization,
              torch.utils._device.DeviceContext, torch.nn.utils.rnn.PackedSequence, torch.random,
              torch.nn.parallel.DistributedDataParallel, torch.nn.parallel.data_parallel]
    return [dict(vars(o)) for o in owners], list(torch.serialization._package_registry)
torch.utils._device._device_constructors()
before = everything()
import ditorch
for _ in range(2):
    assert everything() != before
    torch.ones(2, device="cuda")
    ditorch.disable(); ditorch.disable()
    assert not ditorch.is_enabled()
    after = everything()
    for old, new in zip(before[0], after[0]):
        assert old.keys() - {"ditorch"} == new.keys() - {"ditorch"}, old.keys() ^ new.keys()
        for name in old:
            assert old[name] is new[name] or old[name] == new[name], name
    assert after[1] == before[1]
    assert torch.jit._builtins._find_builtin(torch.zeros) == "aten::zeros"
    if not torch.version.cuda:
        try:
            torch.ones(2, device="cuda")
            raise SystemExit("still enabled")
        except (AssertionError, RuntimeError):
            pass
    ditorch.enable(); ditorch.enable()
