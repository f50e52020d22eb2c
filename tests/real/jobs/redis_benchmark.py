"""redis-server and redis-benchmark with 20 clients, counting: redis_benchmark.py FOLDER STEPS. A line a step."""
import socket
import subprocess
import sys
import time

folder, steps = sys.argv[1], int(sys.argv[2])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
server = subprocess.Popen(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
ask = ["redis-cli", "-p", port]
while subprocess.run([*ask, "ping"], capture_output=True).stdout.strip() != b"PONG":
    if server.poll() is not None:
        sys.exit(f"redis-server ended with {server.returncode}")
    time.sleep(0.05)
for step in range(steps):
    for words in (["incr", "counter"], ["rpush", "list", "x" * 3000]):
        subprocess.run(["redis-benchmark", "-p", port, "-c", "20", "-n", "5000", "-q", *words], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = [subprocess.run([*ask, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["get", "counter"], ["llen", "list"], ["strlen", "counter"])]
    subprocess.run([*ask, "del", "list"], stdout=subprocess.DEVNULL, check=True)
    print("counter, list, digits:", *told, flush=True)
subprocess.run([*ask, "shutdown", "nosave"], capture_output=True)
sys.exit(server.wait())
