"""Edges of the images beside the features of a network, where the two agree on what is alike.

Photographs hardly change by that: their edges agree with a network no more than by chance, and are
left out. Letters, digits, drawings and the like gain much (docs/discovery-evidence.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bacon_gcd.backbone.bank import ReadyTokens, TokenSource, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.edges import N_VALUES, edges_of, with_edges
from bacon_gcd.backbone.joined import side_by_side
from bacon_gcd.backbone.packing import HALF_TOKENS
from bacon_gcd.classes.beside import Second, weigh_second
from bacon_gcd.classes.question import Question
from bacon_gcd.cluster import unit
from bacon_gcd.data.images import ImageTable
from bacon_gcd.system.processes import gather_facts
from bacon_gcd.training.embed import embed_views

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images as a frozen network sees them."""

    table: ImageTable
    labels: IntArray
    """(N,) known class, -1 = unlabeled."""
    backbone: Backbone
    tokens: TokenSource
    seed: int
    workers: int = 2
    stored: str = HALF_TOKENS

    def features(self) -> Tensor:
        """(N, D) unit features."""
        return _frozen(self.backbone, self.tokens)

    def edges(self, rows: IntArray) -> Tensor:
        """(n, E) unit edge histograms of some of the images, from the same views."""
        found = edges_of(self.backbone)
        bank = build_bank(
            self.table,
            rows,
            found,
            n_views=0,
            stored=self.stored,
            seed=self.seed,
            workers=self.workers,
        )
        return _frozen(found, bank)


def _frozen(backbone: Backbone, tokens: TokenSource) -> Tensor:
    tail = backbone.new_tail()
    return embed_views(tail, tokens, n_views=0, device=backbone.device).cpu()


def weigh_edges(pictures: Pictures) -> Second:
    """How much edges count beside the backbone, by some of the images."""
    asked = Question(
        pictures.features(), pictures.labels, pictures.seed, groups=pictures.table.groups
    )
    found = weigh_second(asked, pictures.edges, name="edges of the images")
    # Processors round differently: all processes go by what the first one found.
    return Second(*gather_facts([found.weight, found.factor])[0])


def with_agreeing_edges(pictures: Pictures) -> tuple[Backbone, TokenSource]:
    """Backbone and tokens, with edges beside them where these are worth looking at."""
    found = weigh_edges(pictures)
    if not found.weight:
        return pictures.backbone, pictures.tokens
    return joined_with_edges(pictures, found.factor)


def joined_with_edges(pictures: Pictures, factor: float) -> tuple[Backbone, TokenSource]:
    """The backbone with edges beside it, and its tokens of all images."""
    edges = pictures.edges(np.arange(len(pictures.table)))
    tokens = side_by_side((pictures.features(), edges), (1.0, factor))
    backbone = with_edges(pictures.backbone, factor)
    return backbone, ReadyTokens(tokens.to(backbone.device))


def network_part(features: Tensor, backbone: Backbone) -> Tensor:
    """(N, D) unit features of the network alone, which a model that reads text knows."""
    return unit(features[:, : features.shape[1] - N_VALUES]) if backbone.edges else features
