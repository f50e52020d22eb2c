"""Our own kernels in Triton, in the place of some of flag-gems 5.0.2."""
import functools
import math

import flag_gems
import torch
import triton
import triton.language as tl
from flag_gems.utils.random_utils import philox_backend_seed_offset, uint_to_uniform_float


@triton.jit
def _layer_norm(x, weight, bias, y, mean, rstd, rows, columns, eps, WEIGHTED: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr,
                COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    centre = tl.sum(value, axis=1) / columns
    value = tl.where(inside, value - centre[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / columns + eps)
    value *= scale[:, None]
    if WEIGHTED:
        value *= tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    if BIASED:
        value += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    tl.store(y + at, value, mask=inside)
    tl.store(mean + row, centre, mask=row < rows)
    tl.store(rstd + row, scale, mask=row < rows)


def layer_norm(x, shape, weight, bias, eps):
    """The statistics are float32 and have a one for each normalised dimension, as PyTorch's. flag-gems rounds them to the type of x, and
    the gradients of a model in bfloat16 with them."""
    columns = math.prod(shape)
    rows = x.numel() // columns if columns else math.prod(x.shape[:x.dim() - len(shape)])
    x = x.contiguous()
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    y = torch.empty_like(x)
    mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if x.numel():
        tile = triton.next_power_of_2(columns)
        height = max(1, 1024 // tile)
        with torch.cuda.device(x.device):
            _layer_norm[(triton.cdiv(rows, height),)](x, weight, bias, y, mean, rstd, rows, columns, eps, weight is not None, bias is not None,
                                                      height, tile)
    kept = [*x.shape[:x.dim() - len(shape)], *[1] * len(shape)]
    return y, mean.view(kept), rstd.view(kept)


@triton.jit
def _layer_norm_dx(dy, x, weight, mean, rstd, dx, rows, columns, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    at = row[:, None] * columns + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    scale = tl.load(rstd + row, mask=row < rows, other=0.0).to(tl.float32)[:, None]
    centre = tl.load(mean + row, mask=row < rows, other=0.0).to(tl.float32)[:, None]
    normal = tl.where(inside, (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale, 0.0)
    slope = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    if WEIGHTED:
        slope *= tl.load(weight + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    first = tl.sum(slope, axis=1)[:, None] / columns
    second = tl.sum(slope * normal, axis=1)[:, None] / columns
    tl.store(dx + at, scale * (slope - first - normal * second), mask=inside)


@triton.jit
def _layer_norm_dweights(dy, x, mean, rstd, dweight, dbias, rows, columns, WEIGHT: tl.constexpr, BIAS: tl.constexpr, ROWS: tl.constexpr,
                         COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    of_weight = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    of_bias = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for begin in range(0, rows, ROWS):
        row = begin + tl.arange(0, ROWS)
        at = row[:, None] * columns + column[None, :]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        slope = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(rstd + row, mask=row < rows, other=0.0).to(tl.float32)[:, None]
        centre = tl.load(mean + row, mask=row < rows, other=0.0).to(tl.float32)[:, None]
        of_weight += slope * (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - centre) * scale
        of_bias += slope
    if WEIGHT:
        tl.store(dweight + column, tl.sum(of_weight, axis=0), mask=column < columns)
    if BIAS:
        tl.store(dbias + column, tl.sum(of_bias, axis=0), mask=column < columns)


def layer_norm_backward(dy, x, shape, mean, rstd, weight, bias, mask):
    """flag-gems takes the first dimension alone for the rows, and writes beyond the weights' gradient when there are more."""
    columns = math.prod(shape)
    rows = x.numel() // columns if columns else 0
    dy, x, mean, rstd = dy.contiguous(), x.contiguous(), mean.contiguous(), rstd.contiguous()
    weight = weight.contiguous() if weight is not None else None
    dx = torch.empty_like(x) if mask[0] else None
    dweight = torch.empty_like(weight) if mask[1] and weight is not None else None
    dbias = torch.empty_like(bias, memory_format=torch.contiguous_format) if mask[2] and bias is not None else None
    if rows == 0:
        return dx, *(None if d is None else d.zero_() for d in (dweight, dbias))
    with torch.cuda.device(x.device):
        if dx is not None:
            tile = triton.next_power_of_2(columns)
            height = max(1, 1024 // tile)
            _layer_norm_dx[(triton.cdiv(rows, height),)](dy, x, weight, mean, rstd, dx, rows, columns, weight is not None, height, tile)
        if dweight is not None or dbias is not None:
            _layer_norm_dweights[(triton.cdiv(columns, 32),)](dy, x, mean, rstd, dweight, dbias, rows, columns, dweight is not None,
                                                              dbias is not None, 32, 32)
    return dx, dweight, dbias


@triton.jit
def _count(drawn):
    tl.store(drawn, tl.load(drawn) + 1)


@functools.cache
def drawn(device):
    """How often graphs have drawn random numbers. The generator's offset is a number of the host, which a captured kernel would
    find the same in each launch of its graph."""
    count = torch.zeros(1, dtype=torch.long).to(device)
    _count[(1,)](count)  # a capture cannot load it
    return count


def _drew(device):
    if torch.cuda.is_current_stream_capturing():
        _count[(1,)](drawn(device))


@triton.jit(do_not_specialize=["seed", "offset", "p", "n"])
def _dropout(x, y, kept, drawn, seed, offset, p, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = at.to(tl.uint32) * 0
    r, _, _, _ = tl.philox(seed.to(tl.int64), at.to(tl.uint32), zero + offset.to(tl.uint32), zero + tl.load(drawn).to(tl.uint32), zero + 1)
    keep = uint_to_uniform_float(r) > p
    tl.store(y + at, tl.where(keep, tl.load(x + at, mask=at < n, other=0.0).to(tl.float32) / (1.0 - p), 0.0), mask=at < n)
    tl.store(kept + at, keep, mask=at < n)


def dropout(x, p, train=True):
    """In a graph each launch draws anew."""
    if not train or not 0 < p < 1:
        return flag_gems.dropout(x, p, train)
    x = x.contiguous()
    y, kept = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    if x.numel():
        with torch.cuda.device(x.device):
            seed, offset = philox_backend_seed_offset(4)
            _dropout[(triton.cdiv(x.numel(), 1024),)](x, y, kept, drawn(x.device), seed, offset, p, x.numel(), 1024)
            _drew(x.device)
    return y, kept


@triton.jit(do_not_specialize=["seed", "offset", "low", "span", "n"])
def _integers(x, drawn, seed, offset, low, span, n, BOUNDED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zero = at.to(tl.uint32) * 0
    r0, r1, _, _ = tl.philox(seed.to(tl.int64), at.to(tl.uint32), zero + offset.to(tl.uint32), zero + tl.load(drawn).to(tl.uint32), zero + 2)
    value = (r0.to(tl.uint64) << 32) | r1.to(tl.uint64)
    if BOUNDED:
        value = value % span.to(tl.uint64)
    tl.store(x + at, (value.to(tl.int64) + low.to(tl.int64)).to(x.dtype.element_ty), mask=at < n)


def random_from(x, low, high, *, generator=None):
    """torch.randint; torch.compile takes the seeds of its kernels from it, also in graphs. `high` None: every number of 64 bits."""
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    y = x if x.is_contiguous() else torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        with torch.cuda.device(x.device):
            seed, offset = philox_backend_seed_offset(4, generator)
            bounded = high is not None
            _integers[(triton.cdiv(x.numel(), 256),)](y, drawn(x.device), seed, offset, low, high - low if bounded else 1, x.numel(), bounded, 256)
            _drew(x.device)
    return x if y is x else x.copy_(y)


REPLACED = {"native_dropout": dropout, "native_layer_norm": layer_norm, "native_layer_norm_backward": layer_norm_backward,
            "random_.from": random_from}
