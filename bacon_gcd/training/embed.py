"""Features, or any other function of the tokens, of every image of a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bacon_gcd.backbone.sources import TokenSource
from bacon_gcd.system.processes import alone, gather_rows, share

IntArray = npt.NDArray[np.int64]
CHUNK = 512  # images at a time


@torch.no_grad()
def embed(
    function: Callable[[Tensor], Tensor],
    source: TokenSource,
    *,
    view: int | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """(N, ...) function(tokens) of every image of the source, in order.

    Several processes share out the images, and each has the result for all.

    Args:
        function: of tokens, on `device`; each row of its result depends on that row alone.
        source: where the tokens come from.
        view: number of a training view; the test view unless given.
        device: where the tokens are moved to; torch's default device unless given.
    """
    device = device or torch.get_default_device()
    own = share(len(source))
    stop = max(own.stop, own.start + 1)  # one image more than none tells the shape of the result
    rows = []
    with alone():
        for start in range(own.start, stop, CHUNK):
            positions = np.arange(start, min(start + CHUNK, stop))
            tokens = source.test(positions) if view is None else source.stored_view(positions, view)
            rows.append(function(tokens.to(device)))
    return gather_rows(torch.cat(rows)[: own.stop - own.start], len(source))


def embed_views(
    function: Callable[[Tensor], Tensor],
    source: TokenSource,
    *,
    n_views: int,
    device: torch.device | None = None,
) -> Tensor:
    """(N, D) unit features of every image, averaged over its test view and its training views.

    What differs between crops and mirrored images is no property of a class. Arguments are those
    of `embed`; n_views: the training views that are averaged, 0 for the test view alone.
    """
    total = F.normalize(embed(function, source, device=device), dim=1)
    for view in range(1, n_views + 1):
        total += F.normalize(embed(function, source, view=view, device=device), dim=1)
    return F.normalize(total, dim=1) if n_views else total


@dataclass(frozen=True)
class TrainProbe:
    """The `Probe` of methods.base: an ordered look at all images of a source."""

    source: TokenSource
    labels: IntArray
    seed: int
    device: torch.device | None = None

    @property
    def n_views(self) -> int:
        """Stored training views."""
        return self.source.n_views

    def run(self, function: Callable[[Tensor], Tensor], view: int | None = None) -> Tensor:
        """function(tokens) of every image, in order."""
        return embed(function, self.source, view=view, device=self.device)
