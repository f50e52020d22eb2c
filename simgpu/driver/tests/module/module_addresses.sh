#!/bin/sh
# The same seed and loads give the same places, another seed gives others.
a=$(SIMGPU_SEED=5 "$1") && b=$(SIMGPU_SEED=5 "$1") && c=$(SIMGPU_SEED=6 "$1") || exit 1
[ "$a" = "$b" ] || { echo "seed 5: $a, then $b" >&2; exit 1; }
[ "$a" != "$c" ] || { echo "seeds 5 and 6: $a" >&2; exit 1; }
echo ok
