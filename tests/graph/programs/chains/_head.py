# SPDX-License-Identifier: Apache-2.0
import gc, os
import torch, torch_npu, torchair
from torchair import _compiler

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

def run(make, off):
    """Results of four calls, and how many programs the recordings have."""
    os.environ["NPU_GRAPH_OFF"] = "chains" if off else ""
    torch._dynamo.reset()
    gc.collect()
    _compiler.runners.clear()
    torch.manual_seed(3)
    step, results = make(torchair.get_npu_backend()), []
    for _ in range(4):
        results += [t.detach().cpu().clone() for t in step()]
    assert total("replayed") > 0
    return results, total("programs"), total("fused")

def same_bits(a, b):
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    view = lambda t: (torch.view_as_real(t) if t.is_complex() else t).contiguous()
    a, b = view(a), view(b)
    return torch.equal(a.view(kinds[a.element_size()]), b.view(kinds[b.element_size()]))

def compare(make, programs=1, fused=2):
    on, made, went = run(make, off=False)
    assert made >= programs and went >= fused, (made, went)
    off, none, _ = run(make, off=True)
    assert none == 0 and len(on) == len(off)
    for i, (a, b) in enumerate(zip(on, off, strict=True)):
        assert same_bits(a, b), (i, a, b)
