"""An inference loop of PyTorch with a CUDA graph: usage serve_torch.py [--steps N] [--pace-ms N]. Prints "step N value HEX" for each
replay and a digest at the end. Without a GPU it runs the same network eagerly on the CPU, for rehearsals."""
import argparse
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch import nn  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pace-ms", type=float, default=15)
    parser.add_argument("--device", choices=["cuda", "cpu"], help="default: the GPU when there is one")
    options = parser.parse_args()
    where = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    network = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(512, 512), nn.GELU()))).to(where).eval()
    x = torch.randn(8, 512, device=where)

    @torch.no_grad()
    def work():
        x.copy_(torch.nn.functional.normalize(network(x) + 0.5 * x) * 16)

    graph = None
    if where == "cuda":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
    for step in range(1, options.steps + 1):
        graph.replay() if graph else work()
        print(f"step {step} value {x.double().sum().item().hex()}", flush=True)
        time.sleep(options.pace_ms / 1e3)
    print(f"digest {x.double().abs().sum().item().hex()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
