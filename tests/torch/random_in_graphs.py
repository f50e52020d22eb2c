"""Run by operators_test.py: what random numbers a CUDA graph draws. It knows nothing of gpuckpt."""
import torch
from torch.nn import functional as F


def draw(x):
    return F.dropout(x, 0.3), F.dropout(x, 0.3), torch.randint(10, 100, (1000,), device="cuda")


def check(what, is_so):
    print("ok" if is_so else "FAILED", what, flush=True)


torch.manual_seed(3)
x = torch.ones(5000, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    draw(x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    results = draw(x)
launches = []
for _ in range(3):
    graph.replay()
    launches.append([t.cpu() for t in results])
dropped = [(t == 0).float().mean().item() for launch in launches for t in launch[:2]]
check("dropout drops the part that it shall", all(0.27 < part < 0.33 for part in dropped))
check("and scales the rest", all(set(t.tolist()) <= {0.0, torch.tensor(1 / 0.7).item()} for launch in launches for t in launch[:2]))
check("two in one graph differ", all((launch[0] == launch[1]).float().mean() < 0.65 for launch in launches))
check("each launch draws anew", all((a == b).float().mean() < 0.65 for one, two in zip(launches, launches[1:]) for a, b in zip(one, two)))
numbers = torch.cat([launch[2] for launch in launches])
check("integers are inside their bounds", numbers.min() == 10 and numbers.max() == 99 and 53 < numbers.float().mean() < 56)
first = torch.randint(0, 1000, (5,), device="cuda", generator=torch.Generator("cuda").manual_seed(5))
check("a generator's seed repeats them", torch.equal(first, torch.randint(0, 1000, (5,), device="cuda", generator=torch.Generator("cuda").manual_seed(5))))
torch.manual_seed(3)
first = draw(x)
torch.manual_seed(3)
check("as does the default one's", all(torch.equal(a, b) for a, b in zip(first, draw(x))))
wide = torch.randint(-2**63, 2**63 - 1, (1000,), device="cuda")
check("all 64 bits", wide.min() < -2**62 and wide.max() > 2**62)
check("other types and strides", all(0 <= n < 5 for n in torch.zeros(3, 4, dtype=torch.int32, device="cuda").t().random_(0, 5).flatten().tolist()))
print("end")
