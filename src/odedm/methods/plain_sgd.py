"""torch's stochastic gradient descent, bit for bit, without the seconds that its first use takes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from odedm.core.stored_names import stored

_add, _zero, _step = (
    inspect.unwrap(function) for function in (Optimizer.add_param_group, Optimizer.zero_grad, SGD.step)
)
SETTINGS = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
_hooked_step = Optimizer.profile_hook_step(_step)


def _kernel_call(group: dict[str, Any]) -> tuple[list[Tensor], list[Any], dict[str, Any]] | None:
    """Return what torch's kernel takes for this group of weights, where torch's own step comes to one call of it."""
    weights = [weight for weight in group["params"] if weight.grad is not None]
    if not weights or not group["fused"] or group["momentum"]:
        return None
    gradients = [weight.grad for weight in weights]
    device, dtype = gradients[0].device, gradients[0].dtype
    for gradient in gradients:
        if gradient.dtype is not dtype or gradient.device != device or gradient.layout is not torch.strided:
            return None
    return weights, gradients, {name: group[name] for name in SETTINGS}


@stored("optimizer/sgd")
class PlainSGD(SGD):
    """SGD that leaves torch's compiler asleep.

    torch's own optimizers import the compiler when they are made and at every step, to tell it that they are not for
    it: several seconds in every process, for something that no run here uses. The same functions are called here
    without that.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> optimizer = PlainSGD([weight], lr=0.5, fused=True)
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> weight.tolist()
    [0.5, 0.5]
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's, which reports each call to its profiler: that takes longer than the call itself."""
        if not set_to_none:
            _zero(self, set_to_none)
            return
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None

    def step(self, closure: Any = None) -> Any:
        """As torch's, without gradients of its own."""
        gradients_on = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # not by `torch.no_grad`, which takes as long as the rest of this function
        try:
            if self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks:
                return _hooked_step(self, closure)
            calls = [call for group in self.param_groups if (call := _kernel_call(group))]
            if closure is not None or len(calls) < len(self.param_groups):
                return _step(self, closure)
            for weights, gradients, settings in calls:
                torch._fused_sgd_(weights, gradients, [], **settings, is_first_step=False)
            return None
        finally:
            torch._C._set_grad_enabled(gradients_on)

    step.hooked = True  # type: ignore[attr-defined]  # so that torch does not wrap it in reports to its profiler
