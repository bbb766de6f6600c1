# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu, torch.multiprocessing as mp

def child(inbox, outbox):
    x, p = inbox.get()
    assert x.is_npu and isinstance(p, torch.nn.Parameter) and p.is_npu
    outbox.put((x * 2, p.detach() + 1))
    inbox.get()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    inbox.put((torch.arange(3, device="npu"), torch.nn.Parameter(torch.ones(2, device="npu"))))
    x, p = outbox.get(timeout=100)
    inbox.put(None)
    process.join(100)
    assert x.is_npu and x.tolist() == [0, 2, 4] and p.tolist() == [2, 2]
    print("ok", process.exitcode)
