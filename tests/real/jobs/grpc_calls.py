"""gRPC, a server and two clients, processes of their own: grpc_calls.py STEPS MILLISECONDS

Each client makes a call for every step and has one two-way stream open all the time, on which the server answers with the digest
of all that came by it. A line a step, from one client; the digests of both in the end.
"""
import hashlib
import queue
import subprocess
import sys
import time

import grpc

NAME = "jobs.Calls"


def body(step):
    return bytes([step % 251]) * (1 + step * 7919 % 60000)


def serve():
    from concurrent import futures

    def digest(request, _):
        return hashlib.sha256(request).digest()

    def digests(requests, _):
        all_of_it = hashlib.sha256()
        for request in requests:
            all_of_it.update(request)
            yield all_of_it.digest()

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(NAME, {
        "Digest": grpc.unary_unary_rpc_method_handler(digest), "Digests": grpc.stream_stream_rpc_method_handler(digests)})])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(1).wait()


def client(port, name, steps, pace):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        one, many = channel.unary_unary(f"/{NAME}/Digest"), channel.stream_stream(f"/{NAME}/Digests")
        requests, own = queue.Queue(), hashlib.sha256()
        answers = many(iter(requests.get, None))
        for step in range(steps):
            own.update(body(step))
            requests.put(body(step))
            if one(body(step)) != hashlib.sha256(body(step)).digest() or next(answers) != own.digest():
                sys.exit(f"{name}: another answer in step {step}")
            if name == "client 0":
                print(f"step {step}: {own.hexdigest()}", flush=True)
            time.sleep(pace)
        requests.put(None)
        if list(answers):
            sys.exit(f"{name}: more answers than requests")
    print(f"{name}: {own.hexdigest()}", flush=True)


def main():
    if sys.argv[1] == "serve":
        return serve()
    if sys.argv[1] == "client":
        return client(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    own = [sys.executable, __file__]
    server = subprocess.Popen([*own, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    port = server.stdout.readline().decode().strip()
    clients = [subprocess.Popen([*own, "client", port, f"client {i}", sys.argv[1], str(int(sys.argv[2]) / 1000)],
                                stdout=subprocess.PIPE if i else None) for i in range(2)]
    told = clients[1].communicate()[0].decode()
    status = [c.wait() for c in clients]
    print(told, end="", flush=True)
    server.stdin.close()
    sys.exit(server.wait() or max(status, key=abs))


if __name__ == "__main__":
    main()
