"""asyncio with subprocesses (watched by pidfds), a process pool executor, a pipeline of a shell. See ../python_subprocesses.c."""
import asyncio
import concurrent.futures
import os
import subprocess
import sys
import time


def slow(n):
    while not os.path.exists("go_on"):
        time.sleep(0.005)
    return n


async def talk():
    pool = concurrent.futures.ProcessPoolExecutor(3)  # first: its workers hold what is open when they are forked
    loop = asyncio.get_running_loop()
    sums = [loop.run_in_executor(pool, slow, n) for n in range(6)]
    echo = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    ends = await asyncio.create_subprocess_exec("sh", "-c", "while [ ! -e go_on ]; do sleep 0.02; done; exit 9")
    pipeline = subprocess.Popen("seq 1 400000 | while read n; do echo $n; [ $n = 300 ] && while [ ! -e go_on ]; do sleep 0.02; done; "
                                "[ $n = 600 ] && break; done | sort -n | tail -1", shell=True, stdout=subprocess.PIPE, text=True)
    said = False
    for n in range(100000):
        echo.stdin.write(f"{n}\n".encode())
        assert await asyncio.wait_for(echo.stdout.readline(), 60) == f"{n}\n".encode()
        if n == 30 and not said:
            said = True
            await asyncio.sleep(0.2)
            print("ready", flush=True)
        if os.path.exists("go_on"):
            break
        await asyncio.sleep(0.005)
    assert await asyncio.wait_for(ends.wait(), 60) == 9
    assert [await asyncio.wait_for(s, 60) for s in sums] == list(range(6))
    echo.stdin.close()
    assert await asyncio.wait_for(echo.wait(), 60) == 0
    out, _ = await asyncio.to_thread(pipeline.communicate, None, 60)
    assert out == "600\n" and pipeline.returncode == 0, (out, pipeline.returncode)
    pool.shutdown()


def main():
    if hasattr(asyncio, "PidfdChildWatcher") and sys.version_info < (3, 12):
        watcher = asyncio.PidfdChildWatcher()
        asyncio.set_child_watcher(watcher)
    asyncio.run(talk())
    print("survived", flush=True)


main()
