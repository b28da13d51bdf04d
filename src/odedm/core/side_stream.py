"""Work that a GPU may do beside other work: a second stream, which forks from the current one and joins it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from odedm.core.stored_names import stored


@stored("side-stream")
class SideStream:
    """A stream for work that the current one does not wait for until `join`; on other devices work is done in turn.

    Inside the block work goes to the side. It begins when all is done that the current stream was given before, so what
    is made there may be used here after `join`, and may be let go of here: the next block waits for that. Recordings
    hold such forks too. Whatever layers keep between launches must exist once for each stream.

    >>> side = SideStream(torch.device("cpu"))
    >>> with side():
    ...     x = torch.ones(2)
    >>> side.join()
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.active = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Work inside the block is done beside what follows it."""
        self.active = True
        try:
            if self.stream is None:
                yield
                return
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            with torch.cuda.stream(self.stream):
                yield
        finally:
            self.active = False

    def join(self) -> None:
        """What the current stream is given from here on waits for the side."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
