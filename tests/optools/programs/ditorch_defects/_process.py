# SPDX-License-Identifier: Apache-2.0
import sys, torch, ditorch, torch.distributed as dist
rank = int(sys.argv[2])
dist.init_process_group("nccl", init_method="file://" + sys.argv[1], rank=rank, world_size=3)
def made(*values):
    return torch.tensor([float(v) for v in values], device="cuda")
x = made(rank + 1, 10)
dist.reduce(x, dst=1, op=dist.ReduceOp.SUM)          # dst was dropped
assert rank != 1 or x.tolist() == [6.0, 30.0], x
x = made(rank + 1, -rank)
dist.reduce(x, 2, op=dist.ReduceOp.MAX)
assert rank != 2 or x.tolist() == [3.0, 0.0], x
x = made(rank + 1, 4 * rank)
dist.reduce(x, 1, op=dist.ReduceOp.AVG)
assert rank != 1 or x.tolist() == [2.0, 4.0], x
last = dist.new_group([1, 2])                        # ranks of the group are not the world's
if rank:
    for dst in (1, 2):
        x = made(rank, 3)
        dist.reduce(x, dst=dst, group=last)
        assert rank != dst or x.tolist() == [3.0, 6.0], x
    x = made(rank, 2 * rank)
    dist.all_reduce(x, op=dist.ReduceOp.AVG, group=last)
    assert x.tolist() == [1.5, 3.0], x
out = made(0, 0)
parts = [made(rank + 1, 5), made(10 * rank, 1), made(0, rank)]
dist.reduce_scatter(out, parts)                      # the list was passed on
assert out.tolist() == [[6.0, 15.0], [30.0, 3.0], [0.0, 3.0]][rank], out
dist.reduce_scatter(out, parts, op=dist.ReduceOp.AVG)
assert out.tolist() == [[2.0, 5.0], [10.0, 1.0], [0.0, 1.0]][rank], out
dist.reduce_scatter_tensor(out, torch.cat(parts))
assert out.tolist() == [[6.0, 15.0], [30.0, 3.0], [0.0, 3.0]][rank], out
dist.reduce_scatter_tensor(out, torch.cat(parts), op=dist.ReduceOp.AVG)
assert out.tolist() == [[2.0, 5.0], [10.0, 1.0], [0.0, 1.0]][rank], out
x = made(rank, 6 * rank)
work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
assert work is not None
work.wait()
assert x.tolist() == [1.0, 6.0], x
assert torch.cuda.get_device_capability(0) is not None      # took no argument
dist.destroy_process_group()
print("through")
