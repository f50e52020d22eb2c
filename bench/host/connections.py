#!/usr/bin/env python3
"""What TCP connections cost the stop: bench/host/connections.py BUILD [--rounds 7] [--json FILE]

A process with none, with many sockets that are not connected, and with many connections to itself whose queues hold nothing, some
or many bytes, is snapshot; the stall is the longest gap that a spinning thread of it sees. The first snapshot of each process is
left out; medians of the others. "more": than without sockets; "delivery": than with as many sockets that are not connected, whose
options are read as well. The bytes are copied while the program stands: a plain copy of as many
into fresh memory, by the same machine in the same run, is the baseline.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# Connections, bytes in each direction; -1: sockets that are not connected.
SHAPES = [(0, 0), (100, -1), (100, 0), (1000, -1), (1000, 0), (1000, 4096), (1000, 40960)]


def copy_us(size):
    """A copy of so many bytes into memory that is fresh."""
    source = bytearray(os.urandom(1 << 20)) * max(1, size >> 20)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        bytes(source)
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times) * size / len(source)


def measure(build, count, size, rounds):
    with tempfile.TemporaryDirectory(prefix="gpuckpt-bench-") as work:
        env = dict(os.environ, LD_PRELOAD=f"{build}/lib/libgpuckpt.so", GPUCKPT_STORE=f"{work}/store", GPUCKPT_SESSION_DIR=f"{work}/session")
        program = subprocess.Popen([f"{build}/bin/bench_connections", str(count), str(size)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=env, text=True)
        try:
            assert program.stdout.readline() == "ready\n"

            def ask(line):
                program.stdin.write(line + "\n")
                program.stdin.flush()
                return int(program.stdout.readline())

            gaps, noise = [], []
            for _ in range(rounds + 1):
                ask("reset")
                time.sleep(0.3)
                noise.append(ask("gap"))
                ask("reset")
                done = subprocess.run([f"{build}/bin/gpuckpt", "checkpoint", str(program.pid)], env=env, capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"checkpoint failed: {done.stderr}")
                gaps.append(ask("gap"))
            return {"connections": count, "bytes": size, "stall_us": statistics.median(gaps[1:]), "noise_us": statistics.median(noise)}
        finally:
            program.kill()
            program.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    rows = [measure(build, count, size, options.rounds) for count, size in SHAPES]
    print(f"{'connections':>11} {'unread each':>11} {'stall':>9} {'more':>9} {'delivery':>9} {'a copy':>9} {'noise':>9}")
    idle = {row["connections"]: row["stall_us"] for row in rows if row["bytes"] < 0}
    for row in rows:
        row["more_us"] = row["stall_us"] - rows[0]["stall_us"]
        row["delivery_us"] = row["stall_us"] - idle.get(row["connections"], row["stall_us"])
        row["copy_us"] = copy_us(row["connections"] * row["bytes"] * 2) if row["bytes"] > 0 else 0
        print(f"{row['connections']:>11} {row['bytes'] if row['bytes'] >= 0 else 'none':>11} {row['stall_us'] / 1000:>6.1f} ms {row['more_us'] / 1000:>6.1f} ms {row['delivery_us'] / 1000:>6.1f} ms "
              f"{row['copy_us'] / 1000:>6.1f} ms {row['noise_us'] / 1000:>6.1f} ms")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
