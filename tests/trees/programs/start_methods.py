"""multiprocessing with all start methods at once: pools, a Manager, shared memory, queues, locks. See ../python_start_methods.c."""
import multiprocessing
import os
import sys
import time
from multiprocessing import shared_memory


def work(name, turn, queue, results, common, lock):
    memory = shared_memory.SharedMemory(name=name)
    for n in iter(queue.get, None):
        with lock:
            memory.buf[turn] = (memory.buf[turn] + n) % 251
            common[turn] = common.get(turn, 0) + n
        results.put((turn, n, os.getppid()))
    memory.close()
    sys.exit(40 + turn)


def square(n):
    time.sleep(0.005)
    return n * n


def main():
    methods = ["fork", "spawn", "forkserver"]
    memory = shared_memory.SharedMemory(create=True, size=64)
    manager = multiprocessing.Manager()
    common = manager.dict()
    workers, pools = [], []
    for turn, method in enumerate(methods):
        context = multiprocessing.get_context(method)
        queue, results, lock = context.Queue(), context.Queue(), context.Lock()
        worker = context.Process(target=work, args=(memory.name, turn, queue, results, common, lock))
        worker.start()
        workers.append((worker, queue, results, lock))  # (who drops a lock takes it from a process that has yet to start)
        pools.append(context.Pool(2))
    for turn, (worker, queue, results, _) in enumerate(workers):
        for n in range(10):
            queue.put(n)
        for n in range(10):
            assert results.get(timeout=60)[:2] == (turn, n)
    running = [pool.map_async(square, range(60), chunksize=1) for pool in pools]
    print("ready", flush=True)
    while not os.path.exists("go_on"):
        for worker, queue, results, _ in workers:  # something is always on its way
            queue.put(0)
            results.get(timeout=60)
        time.sleep(0.005)
    for result in running:
        assert result.get(60) == [n * n for n in range(60)]
    assert [pool.map(square, range(8)) for pool in pools] == [[n * n for n in range(8)]] * 3
    for turn, (worker, queue, results, _) in enumerate(workers):
        queue.put(7)
        assert results.get(timeout=60)[:2] == (turn, 7)
        assert memory.buf[turn] == 52 and common[turn] == 52, (memory.buf[turn], common[turn])
        queue.put(None)
        worker.join(60)
        assert worker.exitcode == 40 + turn, worker.exitcode
    for pool in pools:
        pool.terminate()
        pool.join()
    memory.close()
    memory.unlink()
    manager.shutdown()
    print("survived", flush=True)


if __name__ == "__main__":
    main()
