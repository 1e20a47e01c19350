"""Learn from a person's corrections: the images of a run, sorted again under what was said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bacon_gcd.classes.assign import Sorted, probability_known, sort_images
from bacon_gcd.classes.calibration import hold_out, measure
from bacon_gcd.classes.centroids import Places
from bacon_gcd.classes.neighbors import nearest
from bacon_gcd.classes.number import Range, count_classes
from bacon_gcd.cluster import add_centroids, constrained_kmeans, unit
from bacon_gcd.config import UserError, choose, settings_from
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.constraints import Constraints
from bacon_gcd.discovery.corrected import (
    BoolArray,
    Corrected,
    IntArray,
    best_allowed,
    resized,
    what_is_left,
    without_barred,
)
from bacon_gcd.discovery.duplicates import find_duplicates
from bacon_gcd.discovery.edited import Applied
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.inputs import refuse_changed
from bacon_gcd.discovery.material import Material
from bacon_gcd.discovery.pipeline import (
    Discovery,
    Tell,
    gather,
    map_of,
    note_in,
    parse_classes,
    silent,
    train,
)
from bacon_gcd.discovery.recut import UNTRAINED, untrained
from bacon_gcd.discovery.result import DiscoverSettings, Found, write_run
from bacon_gcd.methods.base import Method
from bacon_gcd.model import Model
from bacon_gcd.system.files import replacing_folder
from bacon_gcd.training.loop import TrainProbe

# How many other images these count for in their class. Labels are a fair sample; corrections are
# made where the machine erred, and would drag their class there. On the demo set (quick effort),
# after 30 moves 72% of the other images are right; about 62% when all count the same, 55% before.
LABEL_WEIGHT = 10.0
CONFIRMED_WEIGHT = 3.0


def refit(
    run: str | Path,
    out: str | Path,
    *,
    effort: str | None = None,
    classes: str | int | None = None,
    workers: int = 2,
    tell: Tell | None = None,
) -> Discovery:
    """Sort the images of a run again, with the corrections of `bacon review` as labels and rules.

    Confirmed images stay where the person put them, merged classes stay together, and a wrong image
    leaves its class. Ids and names are kept. The run itself does not change.

    Args:
        out: folder of the new run; it must not exist yet.
        effort: quick, normal or thorough; that of the run, unless given.
        classes: auto, a number or a range; as many as the person left, unless given.
        tell: gets a line now and then about what is going on.
    """
    before = DiscoverRun.load(run)
    applied = corrected(before)
    left = what_is_left(before, applied)
    asked = settings_from(DiscoverSettings, before.config, where=str(before.folder))
    asked = dataclasses.replace(
        asked,
        effort=choose("effort", effort or asked.effort, ("quick", "normal", "thorough")),
        classes=str(classes or len(left.classes)),
        recut=None,
        update=None,
        refit=str(before.folder),
    )
    allowed = parse_classes(asked.classes)
    refuse_too_few(allowed, asked.classes, left)
    with replacing_folder(Path(out)) as draft:
        tell = tell or silent
        settings, material = gather(asked, workers=workers, tell=tell)
        refuse_changed(before, material.table)
        found = learn(settings, material, left, allowed, draft / "log.jsonl")
        found = dataclasses.replace(found, given=tuple(row.label for row in before.rows))
        write_run(draft, settings, found)
        remembered(applied, found, next_id=left.next_id).write(draft)
        tell(f"{n_moved(left, found)} images are in another class than before")
    return Discovery(out)


def refuse_too_few(allowed: Range | None, given: str, left: Corrected) -> None:
    """Classes a person stands for are not given up, and each new one needs an image."""
    if allowed is None:
        return
    fewest, free = int(left.vouched.sum()), int((left.fixed < 0).sum())
    if allowed[1] < fewest:
        raise UserError(f"--classes {given}: labels and corrections name {fewest} classes already")
    if allowed[0] > len(left.classes) + free:
        raise UserError(
            f"--classes {given}: {len(left.classes)} classes and {free} images that are free to "
            f"move make at most {len(left.classes) + free}"
        )


def learn(
    settings: DiscoverSettings,
    material: Material,
    left: Corrected,
    allowed: Range | None,
    log: Path,
) -> Found:
    """Train on all that is certain, then sort every image under the corrections."""
    seed, certain = settings.seed, certain_material(material, left)
    frozen = material.frozen(seed)
    number = count_classes(frozen, certain.labels, seed=seed, allowed=allowed)
    left = resized(left, max(number.estimate, int(left.vouched.sum())))
    note_in(log)(kind="refit", classes=len(left.classes), certain=int(left.certain.sum()))
    held = held_out(settings, material, left)
    name = "bacon-s" if settings.epochs else UNTRAINED
    visible = np.where(held, -1, certain.labels)
    method = train(name, settings, certain, visible, len(left.classes), log)
    features = frozen
    if settings.epochs:
        features = unit(TrainProbe(material.tokens, certain.labels, seed).run(method.features))
    plain = nearest(frozen)  # trained features have learned the labels, also the wrong ones
    places = settle_under(features, left, held, seed=seed)
    result = sort_under(features, left, places, plain, threshold=settings.threshold)
    filled = np.bincount(result.class_ids, minlength=len(left.classes)) > 0
    if not filled.all():  # the ids and numbers of classes that are gone are not used again
        left, places = left.only(filled), _only(places, filled)
        result = sort_under(features, left, places, plain, threshold=settings.threshold)
    return Found(
        material=shown_material(material, left),
        method=sorter(method, material, left, places),
        name=UNTRAINED,
        number=number,
        features=features,
        sorted=result,
        neighbors=nearest(features) if settings.epochs else plain,
        xy=map_of(features, seed),
        twins=find_duplicates(material.table, frozen, plain),
        reliability=places.reliability,
        novel=(),
        next_novel=left.next_novel,
        kept=left.classes,
        certain=left.certain,
    )


def _only(places: Places, filled: BoolArray) -> Places:
    return dataclasses.replace(places, centroids=places.centroids[torch.from_numpy(filled)])


def sorter(method: Method, material: Material, left: Corrected, places: Places) -> Method:
    """The trained features with a centroid per class that is left, known ones first."""
    shown = shown_material(material, left)
    labels = np.where(shown.labels < left.n_known, shown.labels, -1)
    shown = dataclasses.replace(shown, labels=labels)
    found = untrained(Model(method, material.backbone, (), {}), shown, len(left.classes))
    found.set_centroids(places.centroids, temperature=places.temperature)
    return found


def certain_material(material: Material, left: Corrected) -> Material:
    """As training sees it: every class with a certain image is one with labels."""
    seen = np.unique(left.places[left.certain])
    labels = np.where(left.certain, np.searchsorted(seen, left.places), -1).astype(np.int64)
    return dataclasses.replace(
        material, labels=labels, known=tuple(left.classes[c].name for c in seen)
    )


def shown_material(material: Material, left: Corrected) -> Material:
    """As the result shows it: confirmed images make no class known."""
    return dataclasses.replace(
        material,
        labels=np.where(left.labeled, left.places, -1),
        known=tuple(each.name for each in left.classes if each.known),
    )


def held_out(settings: DiscoverSettings, material: Material, left: Corrected) -> BoolArray:
    """(N,) given labels to measure with; what a person corrected all goes into learning."""
    labels = np.where(left.labeled & ~left.confirmed, left.places, -1)
    few = 5 if settings.epochs else 2
    return hold_out(labels, material.table.groups, min_labels=few, seed=settings.seed)


def settle_under(features: Tensor, left: Corrected, held: BoolArray, *, seed: int) -> Places:
    """Clusters under the constraints: once without the held-out labels to measure, then all."""
    reliability = None
    if held.any():
        hidden = dataclasses.replace(left, places=np.where(held, -1, left.places))
        centroids = unit(cluster_under(features, hidden, seed=seed))
        reliability = measure(features[torch.from_numpy(held)] @ centroids.T, left.places[held])
    return Places(unit(cluster_under(features, left, seed=seed)), reliability)


def cluster_under(features: Tensor, left: Corrected, *, seed: int) -> Tensor:
    """(C, D) centroids; each class starts where the person left it, new ones where there is room.

    So a class is still itself after the refit, also one that no image was confirmed of.
    """
    members = [np.flatnonzero(left.places == c) for c in range(len(left.classes))]
    start = torch.stack([features[rows].mean(dim=0) for rows in members if len(rows)])
    if len(start) < len(members):
        homeless = left.homeless(len(start))
        among = torch.from_numpy(homeless if homeless.any() else left.fixed < 0)
        start = add_centroids(features, start, len(members), among=among, seed=seed)
    found = constrained_kmeans(
        features, start, labels=left.fixed, barred=left.barred, weights=weights_of(left)
    )
    return found.centroids


def weights_of(left: Corrected) -> Tensor:
    """(N,) how much an image counts in its class; a hidden label counts like any image."""
    labeled = left.labeled & (left.places >= 0)
    weights = np.where(labeled, LABEL_WEIGHT, 1.0)
    return torch.from_numpy(np.where(left.confirmed, CONFIRMED_WEIGHT, weights)).float()


def sort_under(
    features: Tensor,
    left: Corrected,
    places: Places,
    neighbors: IntArray,
    *,
    threshold: float | None,
) -> Sorted:
    """Every image in its class; certain ones are sure, merged ones as sure as they look.

    neighbors: (N, K) the most similar rows of each.
    """
    cosines = features @ places.centroids.T
    ruled = left.fixed >= 0
    ruled[left.barred[:, 0]] = True
    found = sort_images(
        features,
        np.where(ruled, best_allowed(cosines, left), -1),
        places.centroids,
        neighbors,
        temperature=places.temperature,
        n_known=left.n_known,
        threshold=threshold,
    )
    shares = without_barred(cosines / places.temperature, left).softmax(dim=1).numpy()
    classes = found.class_ids
    sure = shares[np.arange(len(classes)), classes].astype(np.float64)
    known = probability_known(shares, left.n_known)
    return dataclasses.replace(
        found,
        confidence=np.where(left.certain, 1.0, sure),
        known_probability=np.where(left.certain, classes < left.n_known, known),
        outlier=found.outlier & ~left.confirmed,
        suggested=np.where(left.labeled & ~left.confirmed, found.suggested, -1),
    )


def remembered(applied: Applied, found: Found, *, next_id: int) -> Constraints:
    """What the next refit of the new run has to respect, too."""
    names = set(found.class_names)
    return dataclasses.replace(
        applied.constraints,
        cannot_link=tuple(pair for pair in applied.constraints.cannot_link if pair[1] in names),
        next_id=max([next_id, *(each.id + 1 for each in found.kept)]),
    )


def n_moved(left: Corrected, found: Found) -> int:
    """How many images are in another class than the person left them in."""
    before = [left.classes[place].name for place in left.places]
    after = [found.class_names[c] for c in found.sorted.class_ids]
    return sum(a != b for a, b in zip(before, after, strict=True))
