"""Run by operators_test.py: layer norm and its gradients against float64. It knows nothing of gpuckpt."""
import torch


def values(x, weight, bias, slope):
    x, weight, bias = (t.detach().requires_grad_() for t in (x, weight, bias))
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)
    y.backward(slope)
    return [t.detach().cpu().double() for t in (y, x.grad, weight.grad, bias.grad)]


def error(a, b):
    return ((a - b).square().mean().sqrt() / b.square().mean().sqrt()).item()


torch.manual_seed(1)
for shape in ((8, 64), (4, 32, 64), (3, 1000)):
    for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 2.1e-3)):  # bfloat16: what rounding the result alone costs
        given = [t.to(dtype) for t in (torch.randn(shape) * 3 + 1, torch.randn(shape[-1]), torch.randn(shape[-1]), torch.randn(shape))]
        exact, ours = values(*(t.double() for t in given)), values(*(t.cuda() for t in given))
        errors = [error(a, b) for a, b in zip(ours, exact)]
        print("ok" if max(errors) < bound else "FAILED", shape, dtype, *(f"{e:.1e}" for e in errors))
statistics = torch.native_layer_norm(torch.randn(4, 8, device="cuda", dtype=torch.bfloat16), [8], None, None, 1e-5)[1:]
print("ok" if all(s.dtype == torch.float32 and s.shape == (4, 1) for s in statistics) else "FAILED", "statistics are float32")
print("end")
