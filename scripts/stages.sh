#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/stages.sh MAKE STAGE...: runs the stages one after the other, stops at the first that fails, and says
# what each took: seconds on the clock, and seconds of CPU time of all its processes.
set -uo pipefail
make=$1
shift
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
# Sets `spent`, in this shell: another one would not know what our processes used.
cpu() {
  times >"$scratch"
  spent=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += t[1] * 60 + t[2] } printf "%d", s }' "$scratch")
}
lines=()
status=0
for stage in "$@"; do
  began=$SECONDS
  cpu
  before=$spent
  echo "== $stage"
  "$make" --no-print-directory BUILT=1 "$stage" || status=$?
  cpu
  lines+=("$(printf '%-20s %6d s %6d s of CPU time' "$stage" $((SECONDS - began)) $((spent - before)))")
  [ $status -eq 0 ] || break
done
printf '%s\n' "" "${lines[@]}"
if [ $status -ne 0 ]; then echo "$stage failed"; fi
exit $status
