#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/fuzz_under_asan.sh PYTHON DRIVER [SITE]: the fuzz test with every host
# kernel of DRIVER, a libnpu_host.so built under ASAN. Each tensor is a block of
# its own with a poisoned zone behind it, so that a read past its end is seen too.
# SITE: a folder with a torch_npu built under ASAN, used instead of the installed one.
set -euo pipefail
python=$1
driver=$2
site=${3:-}
library() { "${CXX:-c++}" -print-file-name="$1"; }
export NPU_DRIVER=$driver NPU_HOST_KERNELS=all NPU_HOST_REDZONE=1 PYTORCH_NO_NPU_MEMORY_CACHING=1
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
if [ -n "$site" ]; then export PYTHONPATH=$site; fi
# The C++ library too: ASAN looks for what it replaces in there at the start.
LD_PRELOAD="$(library libasan.so) $(library libstdc++.so.6)" \
  "$python" -m pytest -q -p no:cacheprovider tests/python/test_fuzz.py
