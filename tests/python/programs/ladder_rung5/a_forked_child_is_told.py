# SPDX-License-Identifier: Apache-2.0
w = torch.ones(64).npu()
w * 2
pid = os.fork()
if pid == 0:
    try:
        w * 2
    except RuntimeError:
        os._exit(0)
    os._exit(1)
assert os.waitpid(pid, 0)[1] == 0
assert read(w).eq(1).all()
