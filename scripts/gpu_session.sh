#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What waits for a GPU, in one call of ten minutes, with binaries that were built before.
#   scripts/gpu_session.sh make FOLDER   here: drivers, kit and scripts into FOLDER (after make cuda and make build-core)
#   FOLDER/gpu_session.sh run            there: eight files at most into $OUT (default: FOLDER/out), summary.md at the end
# PLUGIN names a folder with torch_npu and opennpu for the machine's PyTorch (PYTHONPATH); without it the steps that need
# Python are left out. LIMIT is how many seconds there are (default 560). Every step has a limit of its own, and a step
# that fails does not end the session.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = make ]; then
  "$here/gpu_kit.sh" make "$2" || exit 1
  mkdir -p "$2/benchmarks" || exit 1
  cp "$0" "$here"/gpu_correct.py "$here"/gpu_profile.py "$here"/gpu_ranks.py "$2" && cp "$here"/../benchmarks/*.py "$2/benchmarks"
  exit
fi
[ "${1:-}" = run ] || { sed -n '3,8s/^# //p' "$0"; exit 2; }
export OUT=${OUT:-$here/out} NPU_DRIVER_PATH=$here PYTHONUNBUFFERED=1
limit=${LIMIT:-560}
mkdir -p "$OUT"
summary=$OUT/summary.md
NPU_CACHE=$(mktemp -d)
export NPU_CACHE
trap 'rm -rf "$NPU_CACHE"' EXIT
# PyTorch's copies of the libraries.
if [ -z "${NPU_CUDA_LIBRARIES:-}" ]; then
  found=$(timeout 30 find / -xdev \( -name 'libcublasLt.so.13' -o -name 'libnvrtc.so.13' -o -name 'libnccl.so.2' \
    -o -name 'libcupti.so.13' \) -not -path '/proc/*' -printf '%h\n' 2>/dev/null | sort -u)
  NPU_CUDA_LIBRARIES=$(paste -sd: <<<"$found")
  export NPU_CUDA_LIBRARIES
fi
{ date -u; timeout 20 nvidia-smi; echo "NPU_CUDA_LIBRARIES=$NPU_CUDA_LIBRARIES"; } >"$OUT/machine.txt" 2>&1
{
  echo "# $(date -u +%F): $(timeout 20 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
  printf '\n| step | result | time | log |\n|---|---|---|---|\n'
} >"$summary"
details=$(mktemp)

# Steps of one area share a log: at most eight files come back, of 16 MiB each. A step may fill 2 MiB.
step() { # log, name, seconds it may take, command...
  local log=$OUT/$1.log name=$2 most=$3 left=$((limit - SECONDS)) text status result start=$SECONDS
  shift 3
  if [ "$left" -lt 15 ]; then
    echo "| $name | left out: no time | | |" >>"$summary"
    return
  fi
  [ "$most" -le "$left" ] || most=$left
  text=$(mktemp)
  # The shell's own words about a program that crashed are not for the reader.
  { timeout -k 5 "$most" "$@" >"$text" 2>&1; } 2>/dev/null
  status=$?
  result="exit status $status"
  [ "$status" -ne 0 ] || result=passed
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then result="ended after $most s"; fi
  {
    echo "==== $name: $result, $((SECONDS - start)) s: $*"
    tail -c 2097152 "$text"
    echo
  } >>"$log"
  echo "| $name | $result | $((SECONDS - start)) s | $(basename "$log") |" >>"$summary"
  echo "$name: $result, $((SECONDS - start)) s"
  # What a reader wants first: failures, else what the step prints at its end.
  {
    printf '\n## %s: %s\n\n```\n' "$name" "$result"
    if [ "$status" -eq 0 ]; then
      tail -n "${lines:-3}" "$text" | cut -c 1-200
    else
      { grep -aE 'FAILED|Error|error:|ended the process|ERROR SUMMARY: [1-9]|cuda driver:' "$text" || tail -n 8 "$text"; } |
        awk '!seen[$0]++' | head -n 12 | cut -c 1-240
    fi
    echo '```'
  } >>"$details"
  rm -f "$text"
}
kit() { # log, name, seconds, arguments of the kit
  local log=$1 name=$2 most=$3
  shift 3
  step "$log" "$name" "$most" "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 "$@"
}
python() { # log, name, seconds, arguments of python3
  [ -n "${PLUGIN:-}" ] || return 0
  local log=$1 name=$2 most=$3
  shift 3
  PYTHONPATH=$PLUGIN:$here NPU_DRIVER=cuda step "$log" "$name" "$most" python3 "$@"
}

# What has never run on a GPU, each part alone: one that loses the context does not take the others with it.
NPU_CUDA_TRY=program kit new "programs" 60 --gtest_filter='program.*'
for kind in softmax softmax_grad layer_norm layer_norm_grad; do
  NPU_CUDA_TRY=rows kit new "rows: $kind" 25 --kind "$kind"
done
NPU_CUDA_TRY=capture kit new "capture/1" 30 --gtest_filter='capture.*'
NPU_CUDA_TRY="comm" kit new "comm/1, one rank" 40 --gtest_filter='comm.*'
NPU_CUDA_TRY=profiler kit new "profiler/1" 30 --gtest_filter='profiler.*'
# What worked before still does.
kit kit "the whole kit" 100 --json "$OUT/kit.json"
# The plugin on it.
python plugin "doctor" 30 -m opennpu doctor
python plugin "against float64" 45 "$here/gpu_correct.py"
NPU_CUDA_TRY=all python plugin "against float64, everything new" 45 "$here/gpu_correct.py"
NPU_CUDA_TRY="comm" lines=8 python plugin "ranks on NCCL" 45 "$here/gpu_ranks.py"
NPU_CUDA_TRY=profiler lines=14 python plugin "a trace with CUPTI" 40 "$here/gpu_profile.py"
lines=14 python plugin "a trace with events" 40 "$here/gpu_profile.py"
lines=30 python benchmark "benchmark" 120 -m benchmarks.gpu
NPU_CUDA_TRY=all NPU_CUDA_KERNELS=all lines=30 python benchmark "benchmark, everything new" 120 -m benchmarks.gpu
if command -v compute-sanitizer >/dev/null 2>&1; then
  for tool in memcheck racecheck; do
    NPU_CUDA_TRY=rows step sanitizer "$tool: rows" 60 compute-sanitizer --tool "$tool" --error-exitcode 1 \
      "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 --kind softmax --kind layer_norm --kind layer_norm_grad
  done
  NPU_CUDA_TRY=program step sanitizer "memcheck: programs" 60 compute-sanitizer --tool memcheck --error-exitcode 1 \
    "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 --gtest_filter='program.*'
fi
cat "$details" >>"$summary"
rm -f "$details"
# At most 16 MiB each.
for file in "$OUT"/*; do
  if [ -f "$file" ] && [ "$(wc -c <"$file")" -gt 16000000 ]; then
    tail -c 16000000 "$file" >"$file.cut" && mv "$file.cut" "$file"
  fi
done
echo
head -c 9000 "$summary"
