#!/bin/bash
# unchanged.sh LIBDIR PROGRAM BEHAVIOUR: the same output and status with and without the preload.
set -u
lib=$1/libgpuckpt.so program=$2 behaviour=$3
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
plain=$("$program" "$behaviour" 2>/dev/null 10>&- | cat; exit "${PIPESTATUS[0]}"); plain_status=$?
export GPUCKPT_STORE=$dir/store GPUCKPT_LOG=error
mine=$(LD_PRELOAD=$lib "$program" "$behaviour" | cat; exit "${PIPESTATUS[0]}"); status=$?
if [ "$plain" != "$mine" ] || [ $status != $plain_status ]; then
  echo "with the preload: status $status instead of $plain_status; output: $mine; expected: $plain"
  exit 1
fi
echo "unchanged"
