# Threads, locks held over the snapshot, a pipe with contents, a child process after the restore.
import threading, time, os, sys, subprocess, hashlib, random
out = sys.stdout
r, w = os.pipe(); os.write(w, b"x" * 3013)
rl = threading.RLock(); rl.acquire(); rl.acquire()
data = {}
def work(n):
    rnd = random.Random(n)
    for i in range(40):
        data[n] = hashlib.sha256(repr((data.get(n), [rnd.random() for _ in range(20000)])).encode()).hexdigest()
        time.sleep(0.01)
ts = [threading.Thread(target=work, args=(i,)) for i in range(3)]
[t.start() for t in ts]
x = 0
for i in range(40):
    x = (x * 31 + i) % 1000003
    print(i, x, file=out, flush=True)
    time.sleep(0.03)
[t.join() for t in ts]
rl.release(); rl.release()
print(sorted(data.items()), os.read(r, 5000).count(b"x"), file=out)
print(subprocess.run(["/bin/echo", "child"], capture_output=True).stdout, file=out)

