# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu, torch.multiprocessing as mp
def work(q):
    q.put(torch.ones(3).sum().item())
if __name__ == "__main__":
    torch.ones(1, device="npu")
    ctx = mp.get_context("fork")
    q = ctx.SimpleQueue()
    p = ctx.Process(target=work, args=(q,))
    p.start(); p.join()
    assert p.exitcode == 0 and q.get() == 3.0
