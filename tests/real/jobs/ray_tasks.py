"""Ray on one node: tasks, and an actor that counts: ray_tasks.py FOLDER STEPS MILLISECONDS. A line a step."""
import hashlib
import sys
import time

import ray


@ray.remote
def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@ray.remote
class Counter:
    def __init__(self):
        self.count = 0

    def more(self):
        self.count += 1
        return self.count


def main():
    folder, steps, pace = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=folder, object_store_memory=80 << 20)
    counter = Counter.remote()
    for step in range(steps):
        told = ray.get(digest.remote(*[digest.remote(step, i) for i in range(3)]))
        print(f"step {step}: {told} {ray.get(counter.more.remote())}", flush=True)
        time.sleep(pace)
    ray.shutdown()


if __name__ == "__main__":
    main()
