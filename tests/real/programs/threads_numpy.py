"""threads_numpy.py STEPS PACE_MS: threads that hand numpy arrays to each other through OpenBLAS, an asyncio loop with tasks, timers
and a thread pool, a generator, a weak dictionary. Prints a digest of everything in each step."""
import asyncio
import hashlib
import queue
import sys
import threading
import weakref

import numpy as np

steps, pace = int(sys.argv[1]), float(sys.argv[2]) / 1000
results = queue.Queue()


class Pool:
    def __init__(self, n):
        self.queues = [queue.Queue() for _ in range(n)]
        self.threads = [threading.Thread(target=self.work, args=(i,), daemon=True) for i in range(n)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        random = np.random.default_rng(number)
        own = random.standard_normal((160, 160))
        while True:
            step, a = self.queues[number].get()
            own = np.tanh(own @ a + random.standard_normal((160, 160)) * 1e-3)
            results.put((number, own.copy()))


class Thing:
    pass


def numbers():
    a, b = 0, 1
    while True:
        yield a
        a, b = b, (a + b) % 1000003


async def tick(log, name, period):
    for i in range(3):
        await asyncio.sleep(period)
        log.append(f"{name}{i}")


async def main():
    pool, series, weak = Pool(4), numbers(), weakref.WeakValueDictionary()
    things = [Thing() for _ in range(100)]
    for i, thing in enumerate(things):
        weak[i] = thing
    a = np.random.default_rng(1).standard_normal((160, 160)) / 13
    loop = asyncio.get_running_loop()
    for step in range(1, steps + 1):
        for q in pool.queues:
            q.put((step, a))
        log = []
        parts = dict([await loop.run_in_executor(None, results.get) for _ in pool.queues])
        await asyncio.gather(tick(log, "a", pace / 4), tick(log, "b", pace / 4))
        a = sum(parts[i] for i in range(4)) / 13
        del things[-1:]
        text = f"{sorted(log)} {next(series)} {len(weak)} ".encode() + a.tobytes()
        print(f"step {step} {hashlib.sha256(text).hexdigest()[:24]}", flush=True)


asyncio.run(main())
print("done", flush=True)
