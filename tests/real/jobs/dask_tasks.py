"""A local cluster of Dask, a scheduler and two workers, processes of their own: dask_tasks.py FOLDER STEPS MILLISECONDS. A line a step."""
import hashlib
import sys
import time

from dask import config
from distributed import Client, LocalCluster


def digest(*parts):
    time.sleep(0.005)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def main():
    folder, steps, pace = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000
    config.set({"distributed.admin.tick.limit": "60s", "distributed.worker.use-file-locking": False})
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=folder) as cluster, \
            Client(cluster) as client:
        kept = None
        for step in range(steps):
            leaves = [client.submit(digest, step, i, pure=False) for i in range(6)]
            kept = client.submit(digest, kept, *leaves, pure=False)  # lies at a worker until the next step
            print(f"step {step}: {kept.result()}", flush=True)
            time.sleep(pace)


if __name__ == "__main__":
    main()
