#!/bin/sh
# The driver looks like the real one to the loader: libc only, no thread-local segment, no C++ run time, slots of the GOT
# that can be rewritten, only cu* exported.
lib=$1
fail() { echo "$lib: $1" >&2; exit 1; }
readelf -dW "$lib" | grep NEEDED | grep -vE 'lib(c|m|dl|pthread|rt)\.so' && fail "needs more than libc"
readelf -lW "$lib" | grep -qE '^ *TLS' && fail "has a PT_TLS segment"
readelf -lW "$lib" | grep -q GNU_RELRO && fail "has RELRO: its GOT cannot be rewritten"
readelf -dW "$lib" | grep -qE 'BIND_NOW|FLAGS.*NOW' && fail "is bound at load"
readelf -dW "$lib" | grep -q 'SONAME.*\[libcuda\.so\.1\]' || fail "has another SONAME"
nm -D --undefined-only "$lib" | awk '{print $NF}' | grep -E '^(_Z|__cxa_(throw|begin|end|guard|pure)|__gxx|_Unwind|__tls)' &&
  fail "imports of the C++ run time"
nm -D --defined-only "$lib" | awk '{print $NF}' | grep -vE '^cu' && fail "exports more than the driver API"
[ "$(nm -D --defined-only "$lib" | wc -l)" -ge 637 ] || fail "exports too little"
echo ok
