"""The protocol: one match of clusters to classes, then accuracy by known, novel and class size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from bacon_gcd.cluster import Ids, IntArray, as_ids, contingency, pair_up
from bacon_gcd.config import UserError, choose

GROUPS = ("released", "thirds")
SIDES = ("known", "novel")
PARTS = ("many", "median", "few")
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Scores:
    """Accuracies in percent; None where there is nothing to measure (JSON null)."""

    all: float | None
    old: float | None
    new: float | None
    known_many: float | None
    known_median: float | None
    known_few: float | None
    known_std: float | None
    novel_many: float | None
    novel_median: float | None
    novel_few: float | None
    novel_std: float | None
    per_class: tuple[float | None, ...]
    nmi: float | None
    """Normalized mutual information, arithmetic mean; 0 to 1."""
    ari: float | None
    """Adjusted Rand index; at most 1."""
    mapping: dict[int, int]
    """Cluster -> class. A cluster without a class (more clusters than classes) is left out."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        values = asdict(self)
        values["per_class"] = list(self.per_class)
        values["mapping"] = {str(cluster): c for cluster, c in self.mapping.items()}
        return values


@dataclass(frozen=True)
class AnchoredScores:
    """Label-anchored accuracies in percent; None where there is nothing to measure."""

    all: float | None
    old: float | None
    new: float | None
    mapping: dict[int, int]
    """Cluster -> class: known ones as named, novel ones as matched for scoring."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        mapping = {str(cluster): c for cluster, c in self.mapping.items()}
        return {"all": self.all, "old": self.old, "new": self.new, "mapping": mapping}


def score(
    predicted: Ids,
    true: Ids,
    *,
    n_known: int,
    train_counts: Sequence[int] | npt.NDArray[np.number[Any]],
    groups: str = "released",
    n_classes: int | None = None,
) -> Scores:
    """BaCon Alg. 2 and Sec. 5.1: one Hungarian match over all classes, then accuracy of each part.

    Args:
        predicted: (N,) cluster ids: any non-negative numbers, more or fewer of them than classes.
        true: (N,) class ids 0..C-1; some may be missing. Classes below `n_known` are known.
        train_counts: (C,) training images per class, labeled and unlabeled.
        groups: many/median/few by the released thresholds, or by exact thirds of the classes.
    """
    counts = np.asarray(train_counts)
    n_classes = len(counts) if n_classes is None else n_classes
    predicted, true = _checked(as_ids(predicted), as_ids(true), n_classes)
    if len(counts) != n_classes:
        raise UserError(f"{len(counts)} train counts for {n_classes} classes")
    mapping = _match(predicted, true, n_classes)
    hit = _mapped(predicted, mapping) == true
    known = true < n_known
    # Parts are weighted by image, as released; on a balanced test set that is the class mean.
    parts = frequency_groups(counts, n_known=n_known, kind=groups)
    accuracy = {name: _percent(hit, np.isin(true, part)) for name, part in parts.items()}
    return Scores(
        all=_percent(hit, np.ones_like(hit)),
        old=_percent(hit, known),
        new=_percent(hit, ~known),
        **accuracy,
        known_std=_spread([accuracy[f"known_{part}"] for part in PARTS]),
        novel_std=_spread([accuracy[f"novel_{part}"] for part in PARTS]),
        per_class=tuple(_percent(hit, true == c) for c in range(n_classes)),
        nmi=float(normalized_mutual_info_score(true, predicted)) if len(true) else None,
        ari=float(adjusted_rand_score(true, predicted)) if len(true) else None,
        mapping=mapping,
    )


def frequency_groups(
    train_counts: Sequence[int] | npt.NDArray[np.number[Any]], *, n_known: int, kind: str
) -> dict[str, IntArray]:
    """Classes of known_many, known_median, known_few, novel_many, ...: BaCon §5.1.

    The paper divides evenly ("thirds"); the released code cuts at the counts found in the third
    and two-third ranks, so that equal counts stay together and groups differ in size.
    """
    choose("groups", kind, GROUPS)
    counts = np.asarray(train_counts)
    result: dict[str, IntArray] = {}
    for name, classes in zip(SIDES, np.split(np.arange(len(counts)), [n_known]), strict=True):
        size = len(classes)
        ranks = (1, 2) if n_known == 5 else (size // 3, 2 * size // 3)
        cut = _thirds(counts[classes]) if kind == "thirds" else _released(counts[classes], ranks)
        result |= {f"{name}_{part}": classes[c] for part, c in zip(PARTS, cut, strict=True)}
    return result


def name_clusters(clusters: Ids, labels: Ids, *, n_clusters: int, n_known: int) -> IntArray:
    """Known class of each cluster, from labeled images alone. Ours.

    A Hungarian match on the labeled images; a cluster that holds no labeled image of its class
    is not named. No ground truth is used: this is the naming a user has.

    Args:
        clusters: (N,) cluster of each labeled image: of the training images where the clusters
            were found there; for clusters found in test images, of the nearest centroid.
        labels: (N,) known classes; rows with -1 are ignored.

    Returns:
        (n_clusters,) known class, -1 = not named, that is: a new class.
    """
    clusters, labels = as_ids(clusters), as_ids(labels)
    seen = labels >= 0
    hits = contingency(clusters[seen], labels[seen], n_clusters=n_clusters, n_classes=n_known)
    names = pair_up(hits)
    named = np.flatnonzero(names >= 0)
    names[named[hits[named, names[named]] == 0]] = -1
    return names


def anchored(
    predicted: Ids, true: Ids, *, names: IntArray | Mapping[int, int], n_known: int
) -> AnchoredScores:
    """Label-anchored accuracy: what a user really gets. Ours.

    `score` names clusters by the ground truth it measures against; here known classes have the
    names that `name_clusters` gave. An image of a known class is right if its cluster bears the
    name of its class. New classes have no name anyone could know: clusters without one are matched
    to novel classes for scoring only, and an image of a novel class in a named cluster is wrong.

    Args:
        names: cluster -> known class, an array or a mapping; -1 or absent = not named.
    """
    predicted, true = _checked(as_ids(predicted), as_ids(true), None)
    mapping = {int(cluster): int(name) for cluster, name in _pairs(names) if name >= 0}
    novel = (true >= n_known) & ~np.isin(predicted, list(mapping))
    n_novel = int(true.max(initial=-1)) + 1 - n_known
    found = _match(predicted[novel], true[novel] - n_known, max(n_novel, 0))
    mapping |= {cluster: c + n_known for cluster, c in found.items()}
    hit = _mapped(predicted, mapping) == true
    known = true < n_known
    return AnchoredScores(
        all=_percent(hit, np.ones_like(hit)),
        old=_percent(hit, known),
        new=_percent(hit, ~known),
        mapping=mapping,
    )


def _match(predicted: IntArray, true: IntArray, n_classes: int) -> dict[int, int]:
    """Cluster -> class with the most hits; ids may be far apart, so they are numbered first."""
    ids, number = np.unique(predicted, return_inverse=True)
    column = pair_up(contingency(number, true, n_clusters=len(ids), n_classes=n_classes))
    return {int(i): int(c) for i, c in zip(ids, column, strict=True) if c >= 0}


def _mapped(predicted: IntArray, mapping: Mapping[int, int]) -> IntArray:
    ids, number = np.unique(predicted, return_inverse=True)
    return np.array([mapping.get(int(i), -1) for i in ids], dtype=np.int64)[number]


def _pairs(names: IntArray | Mapping[int, int]) -> Sequence[tuple[int, int]]:
    return list(names.items() if isinstance(names, Mapping) else enumerate(names.tolist()))


def _percent(hit: BoolArray, chosen: BoolArray) -> float | None:
    return 100.0 * float(hit[chosen].mean()) if chosen.any() else None


def _spread(accuracies: list[float | None]) -> float | None:
    """Population standard deviation, as in the paper's tables; None if a group is empty."""
    values = [value for value in accuracies if value is not None]
    return float(np.std(values)) if len(values) == len(accuracies) else None


def _released(counts: npt.NDArray[Any], ranks: tuple[int, int]) -> list[IntArray]:
    """Many: above the count at the first rank; few: below that at the second; median: the rest."""
    if len(counts) == 0:
        return [np.empty(0, dtype=np.int64)] * 3
    ranked = np.sort(counts)[::-1]
    upper, lower = (ranked[min(rank, len(counts) - 1)] for rank in ranks)
    many, few = counts > upper, counts < lower
    return [np.flatnonzero(many), np.flatnonzero(~many & ~few), np.flatnonzero(few)]


def _thirds(counts: npt.NDArray[Any]) -> list[IntArray]:
    """Largest, middle and smallest third; the first groups take what is left over."""
    return np.array_split(np.argsort(-counts, kind="stable"), 3)


def _checked(
    predicted: IntArray, true: IntArray, n_classes: int | None
) -> tuple[IntArray, IntArray]:
    if len(predicted) != len(true):
        raise UserError(f"{len(predicted)} predictions for {len(true)} true classes")
    if predicted.min(initial=0) < 0 or true.min(initial=0) < 0:
        raise UserError("predictions and true classes must not be negative")
    if n_classes is not None and true.max(initial=-1) >= n_classes:
        raise UserError(f"true class {true.max()} does not fit into {n_classes} classes")
    return predicted, true
