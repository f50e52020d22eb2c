"""ZeroMQ by TCP, a process for each side: zeromq.py reqrep|pubsub STEPS MILLISECONDS

reqrep: three clients ask one server, which answers with a digest of all that this client has ever asked.
pubsub: one publishes numbered messages of many sizes to two subscribers; a gap or a change would be seen in their digests.
A line a step, from one client or subscriber; the digests of all in the end.
"""
import hashlib
import multiprocessing
import sys
import time

import zmq

STEPS, PACE = int(sys.argv[2]), int(sys.argv[3]) / 1000


def body(step):
    return bytes([step % 251]) * (1 + step * 7919 % 60000)


def server(ready, clients):
    socket = zmq.Context().socket(zmq.REP)
    ready.send(socket.bind_to_random_port("tcp://127.0.0.1"))
    asked = {}
    for _ in range(STEPS * clients):
        who, what = socket.recv_multipart()
        asked.setdefault(who, hashlib.sha256()).update(what)
        socket.send(asked[who].digest())


def client(name, port, told):
    socket = zmq.Context().socket(zmq.REQ)
    socket.connect(f"tcp://127.0.0.1:{port}")
    own = hashlib.sha256()
    for step in range(STEPS):
        own.update(body(step))
        socket.send_multipart([name.encode(), body(step)])
        if socket.recv() != own.digest():
            raise SystemExit(f"{name}: another answer in step {step}")
        if name == "client 0":
            print(f"step {step}: {own.hexdigest()}", flush=True)
        time.sleep(PACE)
    told.put(f"{name}: {own.hexdigest()}")


def publisher(ready, subscribers):
    context = zmq.Context()
    socket, greet = context.socket(zmq.XPUB), context.socket(zmq.REP)
    socket.sndhwm, socket.xpub_verbose = 0, 1
    ready.send((socket.bind_to_random_port("tcp://127.0.0.1"), greet.bind_to_random_port("tcp://127.0.0.1")))
    for _ in range(subscribers):
        socket.recv()  # a subscription
        greet.recv()
        greet.send(b"")
    for step in range(STEPS):
        for part in range(5):
            socket.send_multipart([b"topic", b"%d %d" % (step, part), body(step + part)])
        time.sleep(PACE)
    socket.send_multipart([b"topic", b"end", b""])
    for _ in range(subscribers):
        greet.recv()
        greet.send(b"")


def subscriber(name, ports, told):
    context = zmq.Context()
    socket, greet = context.socket(zmq.SUB), context.socket(zmq.REQ)
    socket.rcvhwm = 0
    socket.connect(f"tcp://127.0.0.1:{ports[0]}")
    socket.subscribe(b"")
    greet.connect(f"tcp://127.0.0.1:{ports[1]}")
    greet.send(b"")
    greet.recv()
    digest, count = hashlib.sha256(), 0
    while True:
        _, number, what = socket.recv_multipart()
        if number == b"end":
            break
        if number != b"%d %d" % divmod(count, 5):
            raise SystemExit(f"{name}: {number} is message {count}")
        count += 1
        digest.update(what)
        if name == "subscriber 0" and count % 5 == 0:
            print(f"step {count // 5}: {digest.hexdigest()}", flush=True)
    told.put(f"{name}: {digest.hexdigest()} of {count}")
    greet.send(b"")
    greet.recv()


def main():
    serve, use, count = {"reqrep": (server, client, 3), "pubsub": (publisher, subscriber, 2)}[sys.argv[1]]
    context = multiprocessing.get_context("fork")
    ready, theirs = context.Pipe()
    told = context.Queue()
    one = context.Process(target=serve, args=(theirs, count))
    one.start()
    ports = ready.recv()
    others = [context.Process(target=use, args=(f"{use.__name__} {i}", ports, told)) for i in range(count)]
    for process in others:
        process.start()
    for line in sorted(told.get() for _ in others):
        print(line, flush=True)
    for process in [*others, one]:
        process.join()
        if process.exitcode:
            sys.exit(f"a process ended with {process.exitcode}")


if __name__ == "__main__":
    main()
