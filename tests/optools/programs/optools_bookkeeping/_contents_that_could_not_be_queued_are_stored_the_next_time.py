# SPDX-License-Identifier: Apache-2.0
import resource, op_tools, torch
from op_tools import captures
def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
x = torch.arange(float(24 << 20))
tool = op_tools.OpCapture()
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
with tool:
    torch.sum(x[:10])
    resource.setrlimit(resource.RLIMIT_AS, (used() + (32 << 20), hard))
    torch.sum(x)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    torch.sum(x)
_, first, second = captures.open(tool.folder).select(op="aten::sum")
print("reason", first.args[0].reason)
print("same", torch.equal(second.args[0].load(), x))
