#!/bin/sh
# Two processes with the same seed have different handles, ids and addresses, even without the kernel's help (ASLR off).
run() { if setarch -R true 2>/dev/null; then SIMGPU_SEED=5 setarch -R "$1"; else SIMGPU_SEED=5 "$1"; fi; }
a=$(run "$1") && b=$(run "$1") || exit 1
i=1
for x in $a; do
  [ "$x" != "$(echo "$b" | cut -d' ' -f$i)" ] || { echo "the same in both: $x" >&2; exit 1; }
  i=$((i + 1))
done
echo ok
