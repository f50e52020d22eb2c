"""The operators that flag-gems does not have, or not right.

For each operator with a CUDA kernel of PyTorch's own, the first of these that applies:

- it needs no kernel (views, allocation, reading one number): left alone;
- PyTorch has a form of it made of other operators (`_foreach_*`): that one;
- it is the in-place or out= form of an operator that has a kernel: that one, and a copy;
- PyTorch has a CPU kernel: that one, on copies of the tensors. Slow, and impossible while a CUDA graph is captured.

What is left fails as before, with cudaErrorNoKernelImageForDevice.
"""
import functools

import flag_gems
import torch
from torch.utils import _pytree as pytree
from triton.compiler.errors import CompilationError

from . import kernels

# They launch nothing.
WITHOUT_KERNEL = {
    "_efficientzerotensor", "_fused_sdp_choice", "_local_scalar_dense", "_reshape_alias", "as_strided", "empty.memory_format", "empty_strided",
    "is_set_to", "record_stream", "resize_", "set_", "set_.source_Storage", "set_.source_Storage_storage_offset",
    "set_.source_Tensor", "unfold", "view", "view_as_complex", "view_as_real", "_nested_view_from_buffer",
    "_nested_compute_contiguous_strides_offsets"
}
# Made of other operators by PyTorch itself, under either of these keys. (...NonFunctional is made of the operator's own out= form.)
COMPOSITE = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
# Kernels of flag-gems that take the elements of a tensor to lie one behind the other: with a view they read what is not its own
# (argmax), write what is not its own (zero_, index_add_), or refuse it.
LINEAR = {
    "_is_all_true", "all", "amax", "aminmax", "any", "arctanh_", "argmax", "bernoulli_", "dot", "exponential_", "fill_", "floor_",
    "hardsigmoid", "i0_", "index_add", "index_add_", "min", "multinomial", "normal_", "pixel_unshuffle", "prod", "resolve_neg", "round",
    "round_", "sinh_", "slice_backward", "unfold_backward", "uniform_", "unique_consecutive", "var", "var_mean", "vdot", "zero", "zero_",
    "_upsample_bicubic2d_aa", "linalg_vector_norm"
}

_library = torch.library.Library("aten", "IMPL")


def _overload(key):
    name, _, overload = key.partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


def _has(key, dispatch_key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{key}", dispatch_key)


def _written(schema):
    """Names of the arguments that a call writes to."""
    return [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]


def _inputs(schema):
    written = set(_written(schema))
    return [(a.name, str(a.type)) for a in schema.arguments if not (a.kwarg_only and a.name in written)]


def _functional(key):
    """The form of an in-place or out= operator that returns new tensors; None: there is none."""
    name, _, overload = key.partition(".")
    op = _overload(key)
    if not _written(op._schema):
        return None
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    packet = getattr(torch.ops.aten, base, None)
    for candidate in packet.overloads() if packet is not None else ():
        other = getattr(packet, candidate)
        if not _written(other._schema) and _inputs(other._schema) == _inputs(op._schema) \
                and len(other._schema.returns) == max(len(op._schema.returns), 1):
            return other
    return None


def _key(op):
    name = op._schema.name.removeprefix("aten::")
    return f"{name}.{op._overloadname}" if op._overloadname != "default" else name


def _store(target, value):
    if target.shape != value.shape:
        target.resize_(value.shape)
    target.copy_(value)
    return target


class Registrar(flag_gems.registrar):
    """Operators take CPU tensors without dimensions among CUDA tensors; flag-gems does not. Nor does it have every operator for every
    type and shape, of which it learns before it has launched anything."""

    def register_impl(self, key, function):
        if key.partition(".")[0] in LINEAR:
            function = of_contiguous(_overload(key), function)
        try:
            function = or_on_cpu(_overload(key), function)
            many = sum("Tensor" in str(a.type) for a in _overload(key)._schema.arguments) > 1
        except AttributeError:
            many = False
        if not many or "copy" in key:
            return super().register_impl(key, function)

        def on_device(x):
            return x.cuda() if isinstance(x, torch.Tensor) and x.dim() == 0 and not x.is_cuda else x

        @functools.wraps(function)
        def call(*args, **kwargs):
            return function(*map(on_device, args), **kwargs)

        return super().register_impl(key, call)


def of_contiguous(op, kernel):
    """The kernel on copies of what is not contiguous; what it writes is copied back."""
    names, written = [a.name for a in op._schema.arguments], set(_written(op._schema))

    @functools.wraps(kernel)
    def call(*args, **kwargs):
        copies = []

        def dense(name, x):
            if not isinstance(x, torch.Tensor) or x.is_contiguous():
                return x
            y = x.contiguous()
            if name in written:
                copies.append((x, y))
            return y

        result = kernel(*[dense(name, x) for name, x in zip(names, args)], **{name: dense(name, x) for name, x in kwargs.items()})
        for x, y in copies:
            x.copy_(y)
            result = x if result is y else result
        return result

    return call


def with_tensors(op, kernel):
    """The same kernel, called with tensors where the operator takes tensors: Python kernels get the 2 of `x * 2` as a number."""
    names = [a.name for a in op._schema.arguments]
    wanted = [str(a.type) in ("Tensor", "Optional[Tensor]") for a in op._schema.arguments]
    of_name = dict(zip(names, wanted))

    def tensor(x, want):
        if not want or not isinstance(x, (bool, int, float, complex)):
            return x
        return torch.tensor(x, dtype=torch.get_default_dtype() if isinstance(x, float) else None)

    def call(*args, **kwargs):
        return kernel(*[tensor(x, want) for x, want in zip(args, wanted)], **{k: tensor(x, of_name.get(k)) for k, x in kwargs.items()})

    return call if any(wanted) else kernel


def composite(op, dispatch_key):
    key = getattr(torch._C.DispatchKey, dispatch_key)

    def call(*args, **kwargs):
        return op._op_dk(key, *args, **kwargs)

    return call


def by_functional(op, functional):
    written = _written(op._schema)
    names = [a.name for a in op._schema.arguments]

    def call(*args, **kwargs):
        given = dict(zip(names, args)) | kwargs
        targets = [given[name] for name in written]
        in_place = written[0] == names[0] == "self" and "out" not in written
        if in_place:
            value = functional(*args, **kwargs)
        else:
            value = functional(*args[:len(names) - len(written)], **{k: v for k, v in kwargs.items() if k not in written})
        values = value if isinstance(value, (tuple, list)) else [value]
        stored = [_store(target, new) for target, new in zip(targets, values)]
        return stored[0] if len(stored) == 1 else tuple(stored)

    return call


def on_cpu(op):
    schema = op._schema
    names = [a.name for a in schema.arguments]
    written = _written(schema)
    # Which argument each result is; None: a new tensor.
    aliases = []
    for result in schema.returns:
        sets = result.alias_info.before_set if result.alias_info is not None else None
        aliases.append(next((a.name for a in schema.arguments if sets and a.alias_info is not None and a.alias_info.before_set & sets), None))

    def call(*args, **kwargs):
        given = dict(zip(names, args)) | kwargs
        device = next((x.device for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor) and x.is_cuda), None)
        device = device or torch.device("cuda", torch.cuda.current_device())
        copies = {}

        def to_cpu(x):
            if isinstance(x, torch.Tensor) and x.is_cuda:
                return copies.setdefault(id(x), x.cpu())
            if isinstance(x, torch.device) and x.type == "cuda":
                return torch.device("cpu")
            if isinstance(x, torch.Generator) and x.device.type == "cuda":
                raise NotImplementedError(f"gpuckpt --sim=torch: {op} has no Triton kernel, and the CPU's cannot use a CUDA generator")
            return x

        def to_device(x):
            return x.to(device) if isinstance(x, torch.Tensor) else x

        results = op(*pytree.tree_map(to_cpu, args), **pytree.tree_map(to_cpu, kwargs))
        for name in written:
            for x in pytree.tree_leaves(given[name]):
                if isinstance(x, torch.Tensor) and x.is_cuda:
                    _store(x, copies[id(x)].to(device))
        if len(aliases) == 0:
            return None
        if len(aliases) == 1:
            return given[aliases[0]] if aliases[0] else pytree.tree_map(to_device, results)
        return tuple(given[name] if name else pytree.tree_map(to_device, result) for name, result in zip(aliases, results))

    return call


NOT_THERE = (CompilationError, NotImplementedError, AssertionError, IndexError, TypeError, ValueError, ZeroDivisionError)


def or_on_cpu(op, kernel):
    """PyTorch's CPU kernel for what flag-gems' cannot compile or does not take, such as bytes, empty tensors, other dimensions."""
    cpu = on_cpu(op)

    @functools.wraps(kernel)
    def call(*args, **kwargs):
        try:
            return kernel(*args, **kwargs)
        except NOT_THERE + (RuntimeError,) as error:
            compiling = not isinstance(error, RuntimeError) or "PassManager" in str(error)  # the latter of Triton's, without a type
            if not compiling or torch.cuda.is_current_stream_capturing():
                raise
            return cpu(*args, **kwargs)

    return call


def _kernel_for(key, present):
    op = _overload(key)
    for dispatch_key in COMPOSITE:
        if _has(key, dispatch_key):
            return composite(op, dispatch_key)
    functional = _functional(key)
    if functional is not None and _key(functional) in present:
        return by_functional(op, functional)
    return on_cpu(op) if _has(key, "CPU") else None


def register(present):
    """present: keys such as "add.Tensor" that have a kernel already."""
    for key, kernel in kernels.REPLACED.items():
        _library.impl(key, kernel, "CUDA")
    present = present | set(kernels.REPLACED)
    for name in torch._C._dispatch_get_all_op_names():
        key = name.removeprefix("aten::")
        if not name.startswith("aten::") or key in present or key in WITHOUT_KERNEL \
                or not _has(key, "CUDA") or "sparse" in key or "nested" in key:
            continue
        try:
            kernel = _kernel_for(key, present)
        except (AttributeError, RuntimeError):  # an operator that Python does not see
            continue
        if kernel is not None:
            _library.impl(key, with_tensors(_overload(key), kernel), "CUDA")
