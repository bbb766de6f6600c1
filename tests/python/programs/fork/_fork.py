# SPDX-License-Identifier: Apache-2.0
import os, sys, torch, torch_npu
def in_child(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as e:
            print("child:", e, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
