"""Stops a run whose loss or weights become NaN or infinite, and says at which step and what to do."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.methods.base import Method
from odedm.training.experiment import Experiment


class DivergenceGuard:
    """Checks every step's loss for NaN and infinity.

    On a GPU the host looks late, where it waits anyway, so no step is held up. It stays only a few steps ahead of the
    device, asleep: progress is true, a request to stop is soon heard, and lanes do not fill the driver's queues, in
    which they would wait awake. Steps of many updates, or of a method that derives twice, fill these by themselves, so
    each of these steps is waited for.
    """

    EVERY, AHEAD = 2, 1
    FEW_UPDATES = 2
    """Each step of more is waited for: a host ahead of steps of six kept a third of a core busy waiting, one ahead of
    VR-MCL's steps a whole core, half of it in the system."""

    def __init__(self, method: Method, device: torch.device, plan: Experiment, tasks: int) -> None:
        self.method, self.on_gpu, self._precision, self._tasks = method, device.type == "cuda", plan.precision, tasks
        self.last: Callable[[], Path | None] = lambda: None
        """Where the last good checkpoint is."""
        long_steps = "second order" in method.requires or plan.updates > self.FEW_UPDATES
        self.every, self.ahead = (1, 0) if long_steps else (self.EVERY, self.AHEAD)
        self._zero = torch.zeros((), device=device)
        self._broken = torch.zeros((), device=device)
        """0, and not a number from the first loss on that is not finite."""
        self._ready: list[tuple[torch.cuda.Event, Tensor]] = []
        self._marks: deque[tuple[torch.cuda.Event, Tensor, int]] = deque()
        self._seen = 0

    def note(self) -> None:
        """Inside a step: remember whether its loss was finite. One operation, which a recording takes along."""
        if self.on_gpu:
            self._broken.addcmul_(self.method.last_loss.float(), self._zero)

    def after_step(self, step: int, task: int) -> None:
        """After step number `step`: at once on a CPU; on a GPU about one a few steps back."""
        if not self.on_gpu:
            loss = self.method.last_loss.item()
            if not math.isfinite(loss):
                raise self._error(step, step, task, f"the loss is {loss}")
            return
        if step % self.every:
            return
        mark, flag = self._ready.pop() if self._ready else self._new_mark()
        flag.copy_(self._broken, non_blocking=True)
        mark.record()
        self._marks.append((mark, flag, step))
        if len(self._marks) > self.ahead:
            self._check_next(task)

    def check_all(self, step: int, task: int) -> None:
        """Where the device is waited for anyway, before a checkpoint and after a task: every loss, and every weight."""
        while self._marks:
            self._check_next(task)
        if not math.isfinite(self._broken.item()):
            raise self._error(self._seen + 1, step, task, "the loss is not a finite number")
        self._seen = step
        state = {name: value for name, value in self.method.net.state_dict().items() if value.is_floating_point()}
        sound = torch.stack([value.isfinite().all() for value in state.values()]).tolist()
        if not all(sound):
            name = [*state][sound.index(False)]
            raise self._error(step, step, task, f"the weights '{name}' are not finite numbers")

    def resumed(self, step: int) -> None:
        """Count from this step on."""
        self._seen = step

    def _new_mark(self) -> tuple[torch.cuda.Event, Tensor]:
        return torch.cuda.Event(blocking=True), torch.zeros((), pin_memory=True)

    def _check_next(self, task: int) -> None:
        mark, flag, step = self._marks.popleft()
        mark.synchronize()
        if not math.isfinite(flag.item()):  # on the host: nothing is asked of the device
            raise self._error(self._seen + 1, step, task, "the loss is not a finite number")
        self._seen = step
        self._ready.append((mark, flag))

    def _error(self, first: int, step: int, task: int, what: str) -> UsageError:
        where = f"step {step}" if first == step else f"one of the steps {first} to {step}"
        if step == 1:
            advice = "That was before any update: look for huge values in the data, or in the weights of the net."
        else:
            advice = f"Lower the learning rate (--lr), which is {self.method.lr:g}" + (
                ", or compute in the precision 'fp32' (--set training.precision=fp32)."
                if self._precision == "bf16"
                else "."
            )
        last = self.last()
        kept = f" The last good checkpoint is '{last}'; another rate is another run." if last else ""
        where += f", in task {min(task + 1, self._tasks)} of {self._tasks}"
        return UsageError(f"At {where}, {what}: training diverged. {advice}{kept}")
