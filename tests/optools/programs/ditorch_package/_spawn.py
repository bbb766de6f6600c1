# SPDX-License-Identifier: Apache-2.0
import torch
import torch.multiprocessing as mp

def work(index, shared):
    shared[index] = torch.ones(2, device="cuda").sum().cpu() + index

if __name__ == "__main__":
    shared = torch.zeros(2).share_memory_()
    mp.spawn(work, args=(shared,), nprocs=2)
    assert shared.tolist() == [2, 3], shared
    print("PASSED")
