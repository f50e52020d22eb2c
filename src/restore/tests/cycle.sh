#!/bin/bash
# cycle.sh BUILD OPTIONS DELAY COMMAND...: runs COMMAND plain for reference, then under the preload, takes a snapshot by
# SIGUSR1 after DELAY, kills with SIGKILL, restores from another folder, and compares output and status.
# OPTIONS: nobody (as that user), newids (without namespaces), chain (two more snapshots of restored processes),
# once (the program removes its files at the end, so there is no second restore), stop (checkpoint --stop instead of a kill), refusals (what must be refused is).
set -u
# What the test runner left open is not the program's.
for fd in /proc/self/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && [ $fd != 255 ] && eval "exec $fd>&-"; done
build=$1 options=$2 delay=$3
shift 3
if [[ $options == *nobody* ]]; then
  [ "$(id -u)" = 0 ] || { echo "not root: cannot become nobody"; exit 0; }
  exec su nobody -s /bin/bash -c 'exec "$0" "$@"' -- "$0" "$build" "${options/nobody/}" "$delay" "$@"
fi
dir=$(mktemp -d) && cd "$dir" || exit 1
pids=()
trap 'for p in "${pids[@]}"; do kill -9 $p 2>/dev/null; done; rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; for f in log status restore.log; do [ -f $f ] && { echo "--- $f"; tail -5 $f; }; done; exit 1; }
until_file() { for _ in {1..150}; do [ -s "$1" ] && return 0; sleep 0.1; done; fail "$1 never came"; }
"$@" > reference 2>/dev/null < /dev/null
expected=$?
[[ $options == *newids* ]] && export GPUCKPT_NAMESPACES=0 NEW_IDS=1
export GPUCKPT_STORE=$dir/store GPUCKPT_STATUS_FILE=$dir/status GPUCKPT_LOG=info
LD_PRELOAD=$build/lib/libgpuckpt.so "$@" > out 2> log < /dev/null &
pid=$!
pids+=($pid)
sleep "$delay"
if [[ $options == *stop* ]]; then
  "$build/bin/gpuckpt" checkpoint $pid --stop > id 2>> log || fail "checkpoint --stop"
  wait $pid
  [ "$(cat id)" ] || fail "no id on stdout"
else
  kill -USR1 $pid
  until_file status
  kill -9 $pid
  wait $pid 2>/dev/null
fi
grep -q '"state":"durable"' status || fail "no snapshot"
unset LD_PRELOAD
restore() { (cd / && exec "$build/bin/gpuckpt" restore "$dir/store" --pid-file "$dir/pid" "$@") > restore.out 2> restore.log < /dev/null; }
if [[ $options == *refusals* ]]; then
  cp out kept
  truncate -s 3 out
  restore && fail "restored although a file became shorter"
  grep -q 'shorter' restore.log || fail "the reason is not named"
  restore --dry-run; [ $? = 12 ] || fail "--dry-run does not say 12"
  cat kept > out
fi
if [[ $options == *chain* ]]; then
  for generation in 1 2; do
    rm -f pid status
    restore & driver=$!
    until_file pid
    host=$(cat pid)
    pids+=($host)
    sleep 0.2
    kill -USR1 $host
    until_file status
    kill -9 $host
    wait $driver
    [ $? = 137 ] || fail "generation $generation: restore did not report the kill"
    grep -q "\"state\":\"durable\"" status || fail "generation $generation: no snapshot"
  done
fi
restore
status=$?
[ $status = $expected ] || fail "status $status instead of $expected"
cmp reference out || fail "another output"
# The same snapshot once more.
if [ "$options" = "" ]; then
  restore
  [ $? = $expected ] && cmp reference out || fail "the second restore differs"
fi
echo "identical"
