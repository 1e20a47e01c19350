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
from bacon_gcd.classes.beside import factor_of_second, weight_of_second
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.rules import RULES
from bacon_gcd.classes.space import sample
from bacon_gcd.cluster import unit
from bacon_gcd.data.images import ImageTable
from bacon_gcd.system.progress import working
from bacon_gcd.training.embed import embed_views

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Edged:
    """How much edges count beside a network; not at all where `weight` is 0."""

    weight: float
    """How much of what tells images apart, where the network counts 1."""
    factor: float
    """The length that this gives to the histograms, where features have length 1."""

    def line(self) -> str:
        """For a person."""
        return f"edges of the images count, too: {self.weight:g} times as much as the backbone"


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


def agreeing_edges(pictures: Pictures) -> Edged:
    """Whether edges are worth looking at, by some of the images."""
    rows = sample(len(pictures.table), RULES.agreeing, pictures.seed)
    asked = Question(
        pictures.features(), pictures.labels, pictures.seed, groups=pictures.table.groups
    )
    some, edges = asked.some(rows)[0], pictures.edges(rows)
    with working("comparing edges with the backbone"):
        weight = weight_of_second(some, edges)
    return Edged(weight, factor_of_second(some.features, edges, weight))


def with_agreeing_edges(pictures: Pictures) -> tuple[Backbone, TokenSource]:
    """Backbone and tokens, with edges beside them where these are worth looking at."""
    edged = agreeing_edges(pictures)
    if not edged.weight:
        return pictures.backbone, pictures.tokens
    return joined_with_edges(pictures, edged.factor)


def joined_with_edges(pictures: Pictures, factor: float) -> tuple[Backbone, TokenSource]:
    """The backbone with edges beside it, and its tokens of all images."""
    edges = pictures.edges(np.arange(len(pictures.table)))
    tokens = side_by_side((pictures.features(), edges), (1.0, factor))
    backbone = with_edges(pictures.backbone, factor)
    return backbone, ReadyTokens(tokens.to(backbone.device))


def network_part(features: Tensor, backbone: Backbone) -> Tensor:
    """(N, D) unit features of the network alone, which a model that reads text knows."""
    return unit(features[:, : features.shape[1] - N_VALUES]) if backbone.edges else features
