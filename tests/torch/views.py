"""Operators on views, against the CPU: what lies in a view changes as there, what lies beside it stays.

For operators_test.py: a line that begins with ok for each check, and end."""
import torch

SHAPE = (6, 9, 20)
VIEWS = {
    "slice": lambda t: t[:4, 1:8, 1:14:2],
    "transposed": lambda t: t.transpose(0, 2),
    "expanded": lambda t: t[:, :1, :].expand(6, 9, 20),
}
# Operators that write to the view; "expanded" has elements that lie at one place, and cannot be written.
WRITE = {
    "zero_": lambda v: v.zero_(),
    "fill_": lambda v: v.fill_(3),
    "copy_": lambda v: v.copy_(torch.arange(v.numel(), dtype=torch.float32).reshape(v.shape)),
    "add_": lambda v: v.add_(2),
    "add_ tensor": lambda v: v.add_(torch.ones_like(v), alpha=3),
    "mul_": lambda v: v.mul_(0.5),
    "div_": lambda v: v.div_(4),
    "sub_": lambda v: v.sub_(v * 0.25),
    "pow_": lambda v: v.pow_(2),
    "neg_": lambda v: v.neg_(),
    "abs_": lambda v: v.abs_(),
    "exp_": lambda v: v.exp_(),
    "sqrt_": lambda v: v.abs_().sqrt_(),
    "rsqrt_": lambda v: v.abs_().add_(1).rsqrt_(),
    "reciprocal_": lambda v: v.abs_().add_(1).reciprocal_(),
    "sin_": lambda v: v.sin_(),
    "tanh_": lambda v: v.tanh_(),
    "sigmoid_": lambda v: v.sigmoid_(),
    "relu_": lambda v: v.relu_(),
    "gelu": lambda v: v.copy_(torch.nn.functional.gelu(v)),
    "silu_": lambda v: torch.nn.functional.silu(v, inplace=True),
    "leaky_relu_": lambda v: torch.nn.functional.leaky_relu_(v),
    "clamp_": lambda v: v.clamp_(-0.5, 0.5),
    "clamp_min_": lambda v: v.clamp_min_(0),
    "masked_fill_": lambda v: v.masked_fill_(v > 0, 7),
    "where": lambda v: v.copy_(torch.where(v > 0, v, -v)),
    "lerp_": lambda v: v.lerp_(torch.ones_like(v), 0.25),
    "addcmul_": lambda v: v.addcmul_(v.clone(), v.clone(), value=0.5),
    "addcdiv_": lambda v: v.addcdiv_(v.clone(), v.abs() + 1, value=0.5),
    "index_fill_": lambda v: v.index_fill_(1, torch.tensor([0, 2], device=v.device), 5),
    "index_add_": lambda v: v.index_add_(0, torch.tensor([1], device=v.device), torch.ones_like(v[:1])),
    "index_put_": lambda v: v.index_put_((torch.tensor([0, 1], device=v.device), torch.tensor([1, 1], device=v.device)),
                                         torch.tensor(9.0, device=v.device)),
    "scatter_": lambda v: v.scatter_(2, torch.zeros(v.shape[:2] + (1,), dtype=torch.long, device=v.device), 4.0),
    "cumsum_": lambda v: v.cumsum_(1),
    "tril_": lambda v: v.tril_(),
    "triu_": lambda v: v.triu_(),
    "round_": lambda v: v.mul_(4).round_(),
    "floor_": lambda v: v.floor_(),
    "logical_not_": lambda v: v.logical_not_(),
    "eq_": lambda v: v.eq_(v.clone()),
    "remainder_": lambda v: v.remainder_(0.75),
}
# Random numbers are others than on the CPU: what lies beside the view stays, and what lies in it changes.
DRAW = {
    "uniform_": lambda v: v.uniform_(),
    "normal_": lambda v: v.normal_(),
    "exponential_": lambda v: v.exponential_(),
    "bernoulli_": lambda v: v.bernoulli_(0.5).add_(5),
    "random_": lambda v: v.random_(100, 200),
}
READ = {
    "sum": lambda v: v.sum(),
    "min": lambda v: v.min(),
    "prod of all": lambda v: (v * 0.1 + 1).prod(),
    "any of all": lambda v: v.any(),
    "all of all": lambda v: v.all(),
    "var of all": lambda v: v.var(),
    "aminmax": lambda v: torch.stack(torch.aminmax(v)),
    "dot": lambda v: torch.dot(v[0, :, 1], v[1, :, 2]),
    "round": lambda v: v.round(),
    "unique": lambda v: (v > 0).to(torch.int32).unique(),
    "sum of a dimension": lambda v: v.sum(1),
    "mean": lambda v: v.mean(-1),
    "max": lambda v: v.max(),
    "amax": lambda v: v.amax(0),
    "argmax": lambda v: v.argmax(),
    "argmin of a dimension": lambda v: v.argmin(1),
    "min of a dimension": lambda v: v.min(2)[0],
    "prod": lambda v: (v * 0.5 + 1).prod(1),
    "any": lambda v: (v > 1).any(),
    "all of a dimension": lambda v: (v < 1).all(1),
    "softmax": lambda v: v.softmax(-1),
    "log_softmax": lambda v: v.log_softmax(1),
    "cumsum": lambda v: v.cumsum(2),
    "sort": lambda v: v.sort(-1)[0],
    "topk": lambda v: v.topk(2, dim=1)[0],
    "norm": lambda v: v.norm(),
    "vector_norm": lambda v: torch.linalg.vector_norm(v, dim=1),
    "var": lambda v: v.var(1),
    "std": lambda v: v.std(),
    "flip": lambda v: v.flip(0, 2),
    "cat": lambda v: torch.cat([v, v], 1),
    "stack": lambda v: torch.stack([v, v]),
    "repeat": lambda v: v.repeat(1, 2, 1),
    "repeat_interleave": lambda v: v.repeat_interleave(2, 1),
    "index_select": lambda v: v.index_select(1, torch.tensor([2, 0], device=v.device)),
    "gather": lambda v: v.gather(2, torch.ones(v.shape[:2] + (1,), dtype=torch.long, device=v.device)),
    "masked_select": lambda v: v.masked_select(v > 0),
    "nonzero": lambda v: (v > 0).nonzero(),
    "bmm": lambda v: torch.bmm(v, v.transpose(1, 2)),
    "mm": lambda v: v[0] @ v[1].t(),
    "mv": lambda v: v[0] @ v[1, 0],
    "baddbmm": lambda v: torch.baddbmm(torch.ones(v.shape[0], v.shape[1], v.shape[1], device=v.device), v, v.transpose(1, 2)),
    "layer_norm": lambda v: torch.nn.functional.layer_norm(v, v.shape[-1:]),
    "clone": lambda v: v.clone(),
    "contiguous": lambda v: v.contiguous(),
    "to int": lambda v: (v * 8).to(torch.int32),
    "isnan": lambda v: v.isnan(),
    "diag": lambda v: torch.diag(v[0, 0]),
    "pad": lambda v: torch.nn.functional.pad(v, (1, 2)),
    "logsumexp": lambda v: v.logsumexp(1),
    "zeros_like": lambda v: torch.zeros_like(v),
    "full_like": lambda v: torch.full_like(v, 2),
    "minimum": lambda v: torch.minimum(v, -v),
    "cross_entropy": lambda v: torch.nn.functional.cross_entropy(v[0], torch.zeros(v.shape[1], dtype=torch.long, device=v.device)),
    "embedding": lambda v: torch.nn.functional.embedding(torch.tensor([1, 0], device=v.device), v[0]),
}


# What flag-gems has for some types, shapes and dimensions only.
OTHERS = {
    "bytes %": lambda d: torch.arange(40, dtype=torch.uint8, device=d) % 7,
    "bytes //": lambda d: torch.arange(40, dtype=torch.uint8, device=d) // 7,
    "empty all": lambda d: torch.zeros(0, 5, device=d).all(),
    "empty rand": lambda d: torch.rand_like(torch.zeros(0, 5, device=d)),
    "empty sum": lambda d: torch.zeros(0, 5, device=d).sum(0),
    "topk of a dimension": lambda d: beginning().to(d).topk(2, dim=0)[1],
    "double mm": lambda d: torch.arange(64, dtype=torch.float64, device=d).reshape(8, 8) @ torch.ones(8, 2, device=d, dtype=torch.float64),
    "shifts": lambda d: torch.arange(40, dtype=torch.uint8, device=d) >> 2,
    "halves": lambda d: torch.arange(40, dtype=torch.float16, device=d).cumsum(0),
    "bools": lambda d: (torch.arange(40, device=d) % 3 == 0).sum(),
}


def beginning():
    generator = torch.Generator().manual_seed(5)
    return torch.randn(SHAPE, generator=generator)


def close(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a.float(), b.float(), rtol=1e-4, atol=1e-4)


def check(kind, name, view, operator):
    here, there = beginning(), beginning().cuda()
    a = operator(VIEWS[view](here))
    try:
        b = operator(VIEWS[view](there))
    except Exception as error:
        print("wrong", kind, name, view, repr(error)[:200], flush=True)
        return
    right = close(here, there.cpu()) if kind == "write" else close(a, b.cpu())
    print("ok" if right else "wrong", kind, name, view, flush=True)


def check_draw(name, view, operator):
    before, there = beginning(), beginning().cuda()
    operator(VIEWS[view](there))
    after = there.cpu()
    right = not torch.any(VIEWS[view](after) == VIEWS[view](before))
    VIEWS[view](after).copy_(VIEWS[view](before))
    print("ok" if right and torch.equal(after, before) else "wrong", "draw", name, view, flush=True)


for name, function in OTHERS.items():
    print("ok" if close(function("cpu"), function("cuda").cpu()) else "wrong", "other", name, flush=True)
for view in VIEWS:
    for name, operator in READ.items():
        check("read", name, view, operator)
    if view != "expanded":
        for name, operator in WRITE.items():
            check("write", name, view, operator)
        for name, operator in DRAW.items():
            check_draw(name, view, operator)
print("end")
