#!/bin/sh
# NVIDIA's runtime is told once what to do instead; unimplemented calls are named on request and counted in the report.
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
SIMGPU_LOG=1 SIMGPU_REPORT=$dir/report "$1" 2> "$dir/err" || { cat "$dir/err"; exit 1; }
[ "$(grep -c 'cudart=shared' "$dir/err")" = 1 ] || { echo "the sentence is not there once:"; cat "$dir/err"; exit 1; }
GPUCKPT_SIM=1 "$1" 2> "$dir/err2" || { cat "$dir/err2"; exit 1; }
[ "$(grep -c 'linked into it (cuBLAS' "$dir/err2")" = 1 ] || { echo "not the sentence for run --sim:"; cat "$dir/err2"; exit 1; }
[ "$(grep -c 'cuImportExternalMemory is not implemented' "$dir/err")" = 1 ] || { cat "$dir/err"; exit 1; }
printf 'cuImportExternalMemory 3\ncuMulticastCreate 1\n' | cmp - "$dir/report" || { cat "$dir/report"; exit 1; }
echo ok
