#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/test_optools_sanitized.sh PYTHON address|thread [pytest arguments]: the tools' core built under
# ASAN+UBSAN or under TSAN, four threads on it. PyTorch and Python are not instrumented: what is judged is
# what our code (and PyTorch's headers in it) reads and writes.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "$(command -v "$1")")
kind=$2
shift 2
build=build/optools-$kind
site=$PWD/$build/site
flags=$kind
if [ "$kind" = address ]; then flags=address,undefined; fi
cmake -S optools -B "$build" -G Ninja -DPython3_EXECUTABLE="$python" -DOPTOOLS_SANITIZE="$flags" \
  -DCMAKE_INSTALL_PREFIX="$site" >/dev/null
cmake --build "$build" -j "${JOBS:-2}" --target install >/dev/null
library() { "${CXX:-c++}" -print-file-name="$1"; }
if [ $# -eq 0 ]; then set -- tests/optools/test_optools_stress.py; fi
export PYTHONPATH=$site OP_TOOLS_DEVICE=cpu TORCH_DEVICE_BACKEND_AUTOLOAD=0 OMP_NUM_THREADS=1
# Leaks: Python and PyTorch keep what they keep. The C++ library is preloaded too: ASAN looks for what it
# replaces in there at the start.
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
# Nothing is suppressed: what PyTorch and Python do among themselves is not instrumented, and so not seen.
export TSAN_OPTIONS=halt_on_error=0:exitcode=66:ignore_noninstrumented_modules=1:history_size=4
runner=()
# TSAN of gcc 12 knows no address space as random as newer kernels make it.
if [ "$kind" = thread ]; then runner=(setarch -R); fi
LD_PRELOAD="$(library lib${kind:0:1}san.so) $(library libstdc++.so.6)" \
  "${runner[@]}" "$python" -m pytest -q -p no:cacheprovider "$@"
