#!/bin/bash
# hygiene.sh LIBRARY: needs only libc, exports no C++ symbol, changes no output of unrelated programs.
set -u
lib=$1
needed=$(readelf -d "$lib" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc\.so\.6|ld-linux-x86-64\.so\.2)$')
[ -z "$needed" ] || { echo "needs more than libc: $needed"; exit 1; }
readelf -d "$lib" | grep -q 'SONAME.*\[libcuda.so.1\]' || { echo "SONAME is not libcuda.so.1"; exit 1; }
cxx=$(nm -D --defined-only "$lib" | awk '{print $3}' | grep '^_Z')
[ -z "$cxx" ] || { echo "exports C++ symbols: $cxx"; exit 1; }
for command in "ls -la /usr/lib" "python3 -c print(sum(range(1000)))" "bash -c 'echo \$((6*7))'"; do
  plain=$(bash -c "$command" 2>&1) plain_status=$?
  mine=$(LD_PRELOAD=$lib bash -c "$command" 2>&1) status=$?
  [ "$plain" = "$mine" ] && [ $status = $plain_status ] || { echo "changes the output of: $command"; echo "$mine" | head -5; exit 1; }
done
echo "clean"
