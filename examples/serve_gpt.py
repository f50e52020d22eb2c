#!/usr/bin/env python3
"""Serves a small GPT in PyTorch over HTTP: a cache of keys and values, and requests that join and leave the batch while others are
under way. It knows nothing of gpuckpt.

    python examples/serve_gpt.py --port 8000                                    on a GPU
    gpuckpt run --sim=torch --store DIR -- python examples/serve_gpt.py          on the simulated one
    curl -d '{"prompt": "The licence", "tokens": 20}' http://127.0.0.1:8000/     {"text": ..., "score": ...}

Every answer is the most probable continuation, one character after the other, with the logarithm of its probability. The weights are those that examples/train_gpt.py has
saved (--weights), or random ones. /health says 200 once the first answer can be given.
"""
import argparse
import json
import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from torch.nn import functional as F

from train_gpt import GPT


class Request:
    def __init__(self, prompt, tokens):
        self.prompt, self.tokens, self.answer, self.score, self.done = prompt, tokens, [], 0.0, threading.Event()


class Batch:
    """A fixed number of places, each with its own part of the cache and its own position. A step gives every place its next
    character: of the prompt while there is one, then of the answer. Places without a request compute as well, so that an answer does
    not depend on who else is there."""

    def __init__(self, model, places, length, device):
        self.model, self.length, self.device = model, length, device
        attention = model.blocks[0].attention
        width = attention.project_in.in_features
        shape = (2, places, attention.heads, length, width // attention.heads)
        self.cache = [torch.zeros(shape, device=device) for _ in model.blocks]
        self.requests = [None] * places
        self.characters = torch.zeros(places, dtype=torch.long, device=device)
        self.positions = torch.zeros(places, dtype=torch.long, device=device)
        self.places = torch.arange(length, device=device)
        self.following = None
        self.graph = None

    def decode(self):
        """The most probable character after the one at each place's position, and the logarithm of its probability."""
        model, at = self.model, self.positions
        h = (model.token(self.characters) + model.place(at)).unsqueeze(1)
        here = (self.places == at[:, None])[:, None, :, None]
        seen = (self.places <= at[:, None])[:, None, None, :]
        for block, cache in zip(model.blocks, self.cache):
            x, attention = block.norm1(h), block.attention
            q, k, v = (t.view(len(at), 1, attention.heads, -1).transpose(1, 2) for t in attention.project_in(x).split(x.shape[2], dim=2))
            cache[0].copy_(torch.where(here, k, cache[0]))
            cache[1].copy_(torch.where(here, v, cache[1]))
            y = F.scaled_dot_product_attention(q, cache[0], cache[1], attn_mask=seen)
            h = h + attention.project_out(y.transpose(1, 2).reshape(len(at), 1, -1))
            h = h + block.mlp(block.norm2(h))
        return model.head(model.norm(h))[:, 0].log_softmax(dim=1).max(dim=1)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.decode()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.following = self.decode()

    def admit(self, request):
        self.requests[self.requests.index(None)] = request
        request.position = 0

    def step(self):
        characters = [(r.prompt + r.answer)[r.position] if r else 0 for r in self.requests]
        self.characters.copy_(torch.tensor(characters))
        self.positions.copy_(torch.tensor([r.position if r else 0 for r in self.requests]))
        if self.graph:
            self.graph.replay()
        else:
            self.following = self.decode()
        scores, characters = (t.tolist() for t in self.following)
        for place, (request, character, score) in enumerate(zip(self.requests, characters, scores)):
            if request is None:
                continue
            request.position += 1
            if request.position >= len(request.prompt):
                request.answer.append(character)
                request.score += score
            if len(request.answer) >= request.tokens:
                self.requests[place] = None
                request.done.set()


def serve(batch, waiting):
    """Joins requests to the batch as places become free."""
    while True:
        while None in batch.requests:
            try:
                batch.admit(waiting.get(block=not any(batch.requests)))
            except queue.Empty:
                break
        batch.step()


def handler(waiting, letters, length):
    number = {letter: i for i, letter in enumerate(letters)}

    class Handler(BaseHTTPRequestHandler):
        def reply(self, status, content):
            body = json.dumps(content).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.reply(200, {"status": "ready"}) if self.path == "/health" else self.reply(404, {"error": self.path})

        def do_POST(self):
            try:
                asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                prompt = [number[letter] for letter in asked["prompt"].encode() if letter in number]
                tokens = int(asked["tokens"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                return self.reply(400, {"error": str(error)})
            if not prompt or tokens < 1 or len(prompt) + tokens > length:
                return self.reply(400, {"error": f"a prompt and its answer have at most {length} characters"})
            request = Request(prompt, tokens)
            waiting.put(request)
            request.done.wait()
            return self.reply(200, {"text": bytes(letters[i] for i in request.answer).decode(errors="replace"), "score": request.score})

        def log_message(self, *_):
            pass

    return Handler


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default="/usr/share/common-licenses/GPL-3", help="whose characters the model knows")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--places", type=int, default=4, help="requests that are answered at a time")
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--weights", help="a checkpoint of examples/train_gpt.py of the same sizes")
    parser.add_argument("--graph", action="store_true", help="decode by a CUDA graph")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main():
    begin = time.monotonic()
    options = read_options()
    torch.manual_seed(options.seed)
    with open(options.text, "rb") as file:
        letters = sorted(set(file.read()))
    model = GPT(len(letters), options.length, options.width, options.heads, options.layers, 0.0).eval()
    if options.weights:
        model.load_state_dict(torch.load(options.weights, map_location="cpu")["model"])
    model.to(options.device)
    waiting = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", options.port), handler(waiting, letters, options.length))
    with torch.inference_mode():
        batch = Batch(model, options.places, options.length, options.device)
        if options.graph:
            batch.capture()
        batch.admit(Request([0], 2))
        while any(batch.requests):
            batch.step()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"serve_gpt.py: ready on port {server.server_address[1]} after {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
        serve(batch, waiting)


if __name__ == "__main__":
    main()
