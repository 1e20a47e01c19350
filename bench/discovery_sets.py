"""Features of the image sets of `bench discovery`, computed once, and cells drawn from them."""

import csv
import os
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from bacon_gcd.backbone.bank import build_bank
from bacon_gcd.backbone.catalogue import LITE, OFFLINE, cached
from bacon_gcd.backbone.edges import N_VALUES, Edges
from bacon_gcd.backbone.efficientnet import used_of
from bacon_gcd.backbone.joined import side_by_side
from bacon_gcd.backbone.state import read_state, state_digest
from bacon_gcd.backbone.weights import load_backbone, untrained
from bacon_gcd.backbone.whitening import find_whitening, whitening_from
from bacon_gcd.classes.beside import weigh_second
from bacon_gcd.classes.question import Question
from bacon_gcd.classes.space import centered, scatter
from bacon_gcd.cluster import unit
from bacon_gcd.data import demo
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery.image_size import fitting_size, seen_whole

OUT = Path(__file__).parent / "out"
BACKBONE = OFFLINE
DEVELOPED_ON = ("cifar100", "objects", "textures", "demo")
ONLY_REPORTED = ("birds", "fashion", "cifar10")
SETS = DEVELOPED_ON + ONLY_REPORTED
# Images of the largest class. Smaller than what is there, so that all cells run in an hour.
LARGEST = {
    "cifar100": 40,
    "objects": 60,
    "textures": 120,
    "demo": 120,
    "birds": 60,
    "fashion": 120,
    "cifar10": 120,
}
LABELS = ("1", "3", "10", "half")
SHARES = (0.25, 0.5, 0.8)
RATIOS = (1, 20, 100)
SMALLEST = 5  # images of a class
WEIGHT, DIRECTIONS = 0.3, 128  # of the whitening that is learned here; docs/discovery.md, section 5


@dataclass(frozen=True)
class Cell:
    """One question: a set, how it is labeled, how it is mixed, and a draw."""

    name: str
    labels: str
    share: float
    ratio: int
    draw: int

    @property
    def key(self):
        return f"{self.name}/{self.labels}/{self.share}/{self.ratio}/{self.draw}"


def cells(draws, sets=SETS):
    return [
        Cell(name, labels, share, ratio, draw)
        for draw in draws
        for name in sets
        for labels in LABELS
        for share in SHARES
        for ratio in RATIOS
    ]


def data_folder():
    return Path(os.environ.get("BACON_DATA") or Path(__file__).parents[2] / "shared" / "data")


def chosen_rows(name, classes):
    """The same images for every backbone."""
    rng = np.random.default_rng(0)
    rows = [rng.permutation(np.flatnonzero(classes == c)) for c in np.unique(classes)]
    return np.sort(np.concatenate([each[: LARGEST[name]] for each in rows]))


def features_of(name, backbone_name=BACKBONE):
    """(N, D) unit features and (N,) classes of a set, as `bacon discover` computes them.

    A set that the whitening was learned on gets one that was learned on the others.
    """
    x, classes = plain_features(name, backbone_name)
    whitening = whitening_of(backbone_name)
    if whitening is None:
        return x, classes
    if name in DEVELOPED_ON:
        others = [plain_features(each, backbone_name) for each in DEVELOPED_ON if each != name]
        whitening = learned_whitening(others)
    return unit(whitening(torch.from_numpy(x))).numpy(), classes


def whitening_of(backbone_name):
    """What `bacon discover` uses with this backbone; None: nothing."""
    return find_whitening(lite_weights()) if backbone_name == LITE else None


@cache
def lite_weights():
    """The digest of the weights that a whitening is learned with."""
    return state_digest(used_of(read_state(cached(LITE))))


def learned_whitening(sets):
    """From the features and classes of some sets, each of which counts the same."""
    within = [scatter(centered(torch.from_numpy(x)).double().numpy(), y) for x, y in sets]
    mean = torch.from_numpy(sum(each / np.trace(each) for each in within))
    return whitening_from(mean, weight=WEIGHT, n_directions=DIRECTIONS)


def plain_features(name, backbone_name=BACKBONE):
    """The same without whitening."""
    stored = OUT / "features" / f"{name}-{backbone_name}.npz"
    if not stored.exists():
        images, classes = images_of(name)
        size = fitting_size(backbone_name, images)
        whole = seen_whole(images)
        backbone = load_backbone(
            backbone_name, image_size=size, tuned=untrained(backbone_name), uncropped=whole
        )
        undo = getattr(whitening_of(backbone_name), "undo", None)
        store(stored, images, chosen_rows(name, classes), classes, backbone, undo)
    return read_features(stored)


def with_edges_of(name):
    """(N, D + E) unit features of a set with its unit edge histograms behind them; (N,) classes."""
    x, classes = features_of(name)
    stored = OUT / "features" / f"{name}-edges.npz"
    if not stored.exists():
        images, of_all = images_of(name)
        edges = Edges(fitting_size(BACKBONE, images))
        edges.uncropped = seen_whole(images)
        store(stored, images, chosen_rows(name, of_all), of_all, edges)
    return np.concatenate([x, read_features(stored)[0]], axis=1), classes


def as_discovered(both, labels):
    """(n, D) unit features of such rows as `bacon discover` sees them, edges where they count."""
    x, edges = (torch.from_numpy(part) for part in np.split(both, [-N_VALUES], axis=1))
    found = weigh_second(Question(x, labels, 0), lambda rows: edges[torch.from_numpy(rows)])
    return (unit(side_by_side((x, edges), (1.0, found.factor))) if found.weight else x).numpy()


def store(path, table, rows, classes, backbone, undo=None):
    """Unit features of some images in a file, with their classes.

    undo: takes the whitening away again.
    """
    bank = build_bank(table, rows, backbone, n_views=0, seed=0, workers=2)
    tail = backbone.new_tail()
    parts = [tail(bank.test(part)).detach() for part in np.array_split(np.arange(len(rows)), 50)]
    plain = [undo(each) for each in parts] if undo else parts
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.concatenate([unit(each).numpy() for each in plain])
    np.savez(path, x=values, y=classes[rows])


def described(stem, images, rows, classes):
    """(n, D + E) features of some images with their edges behind them, stored under this name."""
    size, whole, parts = fitting_size(BACKBONE, images), seen_whole(images), []
    network = load_backbone(BACKBONE, image_size=size, tuned=untrained(BACKBONE), uncropped=whole)
    edges = Edges(size)
    edges.uncropped = whole
    for what, backbone in (("network", network), ("edges", edges)):
        stored = OUT / "features" / f"{stem}-{what}.npz"
        if not stored.exists():
            store(stored, images, rows, classes, backbone)
        parts.append(read_features(stored)[0])
    return np.concatenate(parts, axis=1)


def read_features(stored):
    """What `store` wrote: (N, D) and (N,)."""
    found = np.load(stored, allow_pickle=False)
    return found["x"].astype(np.float32), found["y"].astype(np.int64)


def images_of(name):
    if name == "demo":
        table = demo.load()
        return table, table.labels
    folder = data_folder() / name
    if folder.is_dir():
        return labeled_folder(folder)
    stored = np.load(data_folder() / f"{name}-subset.npz", allow_pickle=False)
    plain = OUT / "features" / f"{name}-images.npz"
    plain.parent.mkdir(parents=True, exist_ok=True)
    np.savez(plain, images=stored["train_images"])
    return read_images(plain, None), stored["train_labels"]


def labeled_folder(folder):
    """The images of FOLDER/images, and (N,) their classes by FOLDER/truth.csv."""
    with (folder / "truth.csv").open(encoding="utf-8") as file:
        truth = {Path(row["file_name"]).name: row["class"] for row in csv.DictReader(file)}
    table = read_images(folder / "images", None)
    return table, np.unique([truth[Path(i).name] for i in table.ids], return_inverse=True)[1]


def drawn(cell, features, classes):
    """Features, true classes (known first), visible labels and the number of known classes."""
    rng = np.random.default_rng([zlib.crc32(cell.name.encode()), cell.draw])
    order = rng.permutation(np.unique(classes))
    ranks = rng.permutation(len(order))
    n_known = max(1, round(cell.share * len(order)))
    chosen = mixture(
        classes,
        order,
        ranks,
        rng,
        largest=LARGEST[cell.name],
        ratio=cell.ratio,
        labeled=cell.labels,
        n_known=n_known,
    )
    return features[chosen[0]], *chosen[1:], n_known


def mixture(classes, order, ranks, rng, *, largest, ratio, labeled, n_known):
    """Rows of a long-tailed mixture, their true classes (known first) and their visible labels.

    Args:
        order: the classes that are taken, known ones first.
        ranks: of each by size; 0 is the largest, with so many images.
        labeled: how many images of a known class are, or "half" of them.
    """
    rows, true, labels = [], [], []
    for number, each in enumerate(order):
        have = rng.permutation(np.flatnonzero(classes == each))
        fall = ratio ** (-ranks[number] / max(len(order) - 1, 1))
        size = min(max(SMALLEST, int(min(largest, len(have)) * fall)), len(have))
        n_labeled = -(-size // 2) if labeled == "half" else min(int(labeled), size - 1)
        n_labeled *= number < n_known
        rows += have[:size].tolist()
        true += [number] * size
        labels += [number] * n_labeled + [-1] * (size - n_labeled)
    mixed = rng.permutation(len(rows))
    return tuple(np.array(each)[mixed] for each in (rows, true, labels))
