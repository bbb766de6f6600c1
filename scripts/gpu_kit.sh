#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The conformance kit on a machine with a GPU, which needs neither the sources nor a compiler.
#   scripts/gpu_kit.sh make FOLDER   here: puts drivers, kit and this script into FOLDER
#   FOLDER/gpu_kit.sh run [KIND...]  there: runs the kit, logs into $OUT (default: FOLDER/out)
# Kinds run in processes of their own: one that loses the GPU's context does not take the others with it. One after
# another: the kit looks at how much memory of the GPU is free.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ "${1:-}" = make ]; then
  build=$here/../build/core
  mkdir -p "$2" && cp "$build/drivers/libnpu_host.so" "$build/drivers/libnpu_cuda.so" \
    "$build/tests/conformance/npu_conformance" "$0" "$2" || exit 1
  strip "$2"/*.so "$2/npu_conformance"
  exit 0
fi
[ "${1:-}" = run ] || { sed -n '3,7s/^# //p' "$0"; exit 2; }
shift
out=${OUT:-$here/out}
mkdir -p "$out"
export NPU_DRIVER_PATH=$here
# PyTorch's own copy of cuBLASLt and the others.
if [ -z "${NPU_CUDA_LIBRARIES:-}" ]; then
  found=$(find / -xdev -name 'libcublasLt.so.13' -not -path '/proc/*' 2>/dev/null | head -1)
  NPU_CUDA_LIBRARIES=$(dirname "${found:-/none/none}")
  export NPU_CUDA_LIBRARIES
fi
{ date; nvidia-smi; echo "NPU_CUDA_LIBRARIES=$NPU_CUDA_LIBRARIES"; } >"$out/machine.txt" 2>&1
kit() { # name, arguments of the kit
  local name=$1 start=$SECONDS
  shift
  timeout 120 "$here/npu_conformance" --driver "$here/libnpu_cuda.so" --gtest_brief=1 "$@" >"$out/$name.log" 2>&1
  echo "$name: exit status $?, $((SECONDS - start)) s" | tee -a "$out/summary.txt"
}
if [ $# -gt 0 ]; then
  for kind in "$@"; do kit "kind_$kind" --kind "$kind"; done
  exit 0
fi
for group in abi device memory stream event errors copy fill random map mixed; do
  kit "$group" --gtest_filter="$group.*"
done
for kind in copy fill unary unary_with binary compare ternary random dropout randperm range eye reduce softmax softmax_grad \
  layer_norm layer_norm_grad rms_norm rms_norm_grad index_select gather take gemm embedding_grad optimizer amp_unscale amp_update_scale; do
  kit "kind_$kind" --kind "$kind"
done
kit all --json "$out/all.json"
grep -h "FAILED\|ended the process" "$out"/*.log | sort -u >"$out/failed.txt"
