# SPDX-License-Identifier: Apache-2.0
import atexit
atexit.register(lambda: print("first handler ran"))
import torch, op_tools
kept = open("buffered.txt", "w")
kept.write("whole")
lib = torch.library.Library("aten", "IMPL")
names = {"torch": torch}  # the kernel is kept for ever, and so are its globals
exec("wrong = lambda x: (x - 1.5707963267948966 + (x.dtype == torch.float32)).cos()", names)
lib.impl("sin", names["wrong"], "CPU", allow_override=True)
op_tools.OpAutoCompare().start()
torch.ones(4).sin()
