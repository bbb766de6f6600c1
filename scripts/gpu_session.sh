#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What waits for a GPU, in one call of ten minutes, with binaries that were built before.
#   scripts/gpu_session.sh make FOLDER   here: drivers, kit and scripts into FOLDER (after make cuda and make build-core)
#   FOLDER/gpu_session.sh run            there: logs into $OUT (default: FOLDER/out), one line per step in $OUT/session.txt
# PLUGIN names a folder with torch_npu and opennpu for the machine's PyTorch (PYTHONPATH); without it the steps that need
# Python are left out. LIMIT is how many seconds there are (default 570): a step that would not end in time is left out.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = make ]; then
  "$here/gpu_kit.sh" make "$2" && cp "$0" "$2" && mkdir -p "$2/benchmarks" && cp "$here"/../benchmarks/*.py "$2/benchmarks"
  cp "$here/gpu_correct.py" "$2"
  exit
fi
[ "${1:-}" = run ] || { sed -n '3,7s/^# //p' "$0"; exit 2; }
export OUT=${OUT:-$here/out} NPU_DRIVER_PATH=$here
limit=${LIMIT:-570}
mkdir -p "$OUT"
if [ -z "${NPU_CUDA_LIBRARIES:-}" ]; then
  found=$(find / -xdev \( -name 'libcublasLt.so.13' -o -name 'libnvrtc.so.13' \) -not -path '/proc/*' -printf '%h\n' 2>/dev/null | sort -u)
  NPU_CUDA_LIBRARIES=$(paste -sd: <<<"$found")
  export NPU_CUDA_LIBRARIES
fi
export NPU_CACHE=$OUT/cache
{ date; nvidia-smi; echo "NPU_CUDA_LIBRARIES=$NPU_CUDA_LIBRARIES"; } >"$OUT/machine.txt" 2>&1
step() { # name, seconds it may take, command...
  local name=$1 most=$2 start=$SECONDS status
  shift 2
  if [ $((SECONDS + most)) -gt "$limit" ]; then
    echo "$name: left out, $((limit - SECONDS)) s are left" | tee -a "$OUT/session.txt"
    return
  fi
  timeout "$most" "$@" >"$OUT/$name.log" 2>&1
  status=$?
  echo "$name: exit status $status, $((SECONDS - start)) s" | tee -a "$OUT/session.txt"
}
kit() { # name, seconds, arguments of the kit
  local name=$1 most=$2
  shift 2
  step "$name" "$most" "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 "$@"
}
# What is new first, each part alone: one that loses the context does not take the others with it.
NPU_CUDA_TRY=program kit try_program 90 --gtest_filter='program.*'
for kind in softmax softmax_grad layer_norm layer_norm_grad; do
  NPU_CUDA_TRY=rows kit "try_rows_$kind" 40 --kind "$kind"
done
NPU_CUDA_TRY=capture kit try_capture 40 --gtest_filter='capture.*'
# What worked before still does.
kit all 120 --json "$OUT/all.json"
if command -v compute-sanitizer >/dev/null 2>&1; then
  for tool in memcheck racecheck; do
    NPU_CUDA_TRY=all step "sanitizer_$tool" 100 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 --kind softmax --kind layer_norm --kind layer_norm_grad
  done
  NPU_CUDA_TRY=all step sanitizer_program 60 compute-sanitizer --tool memcheck --error-exitcode 1 \
    "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 --gtest_filter='program.*'
fi
if [ -n "${PLUGIN:-}" ]; then
  export PYTHONPATH=$PLUGIN:$here NPU_DRIVER=cuda
  step doctor 40 python3 -m opennpu doctor
  step correct 60 python3 "$here/gpu_correct.py"
  NPU_CUDA_TRY=all step correct_try 60 python3 "$here/gpu_correct.py"
  step benchmark 150 python3 -m benchmarks.gpu
  NPU_CUDA_TRY=all NPU_CUDA_KERNELS=all step benchmark_try 150 python3 -m benchmarks.gpu
fi
grep -l "FAILED\|ERROR SUMMARY: [1-9]" "$OUT"/*.log 2>/dev/null | tee "$OUT/failed.txt"
