"""The scikit-learn face: fit, predict, transform, save; -1 means unlabeled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from bacon_gcd.backbone.bank import FreshTokens, ReadyTokens, TokenSource, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.cluster import estimate_n_classes
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.images import ImageTable, from_arrays, read_images
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.methods import METHODS, build_method, recipe_for, settings_for
from bacon_gcd.methods.base import Task
from bacon_gcd.metrics import anchored
from bacon_gcd.model import describe_backbone, load_model, novel_names, save_model
from bacon_gcd.system.files import read_json, write_json
from bacon_gcd.training.loop import Trainer, TrainingData, TrainProbe

IntArray = npt.NDArray[np.int64]
VECTOR_NOISE = 0.1  # of the vectors' own spread: what makes two views of one vector differ


class CategoryDiscovery(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sort images or vectors into known classes and newly found ones.

    Args:
        method: see `bacon methods`.
        n_classes: known and novel together; None estimates it from the labels.
        backbone: catalogue name, hf:NAME_OR_FOLDER or timm:NAME for images; 2-D arrays of vectors
            need none.
        preset: of the method; None takes its first.
        epochs: length of training.
        image_size: side of the images in pixels; None takes the backbone's own.
        views: training views that are stored per image.
        batch_size, learning_rate: None takes the method's own.
        settings: changes to the method's settings, e.g. {"alpha": 0.8}.
        random_state: decides everything that is drawn.

    Attributes:
        labels_: class of every training image; names where y had names, otherwise integers:
            known classes keep theirs, novel ones are numbered after the largest.
        classes_: known classes as given, then novel_000, novel_001, ...
        class_counts_: training images per class, as the method estimates them.
        model_: what `save` keeps.
    """

    def __init__(
        self,
        method: str = "bacon-s",
        *,
        n_classes: int | None = None,
        backbone: str = "resnet18.pypi_in1k",
        preset: str | None = None,
        epochs: int = 30,
        image_size: int | None = None,
        views: int = 4,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.n_classes = n_classes
        self.backbone = backbone
        self.preset = preset
        self.epochs = epochs
        self.image_size = image_size
        self.views = views
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: Any, y: npt.ArrayLike | None = None) -> CategoryDiscovery:
        """Learn from X, of which y names some classes.

        X: a folder, a list of image files, uint8 images (N, H, W, 3), or vectors (N, D).
        y: (N,) integers or names, -1 = unlabeled; None takes a folder's own labels.
        """
        backbone, source, own_labels = self._read(X)
        known, labels = encode(own_labels if y is None else y, len(source))
        n_classes = self.n_classes or self._estimate(backbone, source, labels)
        if not len(known) <= n_classes <= len(source):
            raise UserError(
                f"n_classes {n_classes} must be at least the {len(known)} known classes "
                f"and at most the {len(source)} samples"
            )
        trainer = self._trainer(backbone, source, labels, n_known=len(known), n_classes=n_classes)
        trainer.run()
        trainer.method.place_centroids(trainer.probe)
        self._keep(trainer, backbone, known)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class of each sample, as in `labels_`; the same classes for ever."""
        return self._spoken(self._logits(X).argmax(axis=1))

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """(N, C) probabilities, columns as in `classes_`."""
        return cast("npt.NDArray[np.float32]", torch.from_numpy(self._logits(X)).softmax(1).numpy())

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """(N, D) unit-length features of the branch that is clustered."""
        check_is_fitted(self)
        source = self._source(X)
        probe = TrainProbe(source, np.full(len(source), -1), self.random_state)
        features: npt.NDArray[np.float32] = probe.run(self.model_.predictor.features).numpy()
        return features

    def score(self, X: Any, y: npt.ArrayLike) -> float:
        """Label-anchored accuracy, 0 to 1: known classes by name, new ones by the best match.

        y: true classes; ones that were not known in `fit` count as novel. -1 is left out.
        """
        predicted = self._logits(X).argmax(axis=1)
        values = np.asarray(y, dtype=object)
        told = np.array([not is_unlabeled(v) for v in values])
        known = {c: number for number, c in enumerate(self.known_)}
        novel = sorted({str(v) for v in values[told] if v not in known})
        others = {name: len(known) + number for number, name in enumerate(novel)}
        true = np.array([known.get(v, others.get(str(v), -1)) for v in values[told]])
        names = np.where(
            np.arange(len(self.classes_)) < len(known), np.arange(len(self.classes_)), -1
        )
        found = anchored(predicted[told], true, names=names, n_known=len(known)).all
        return float("nan") if found is None else found / 100

    def save(self, folder: str | Path) -> None:
        """Write a folder of safetensors and JSON, to be read by `load`."""
        check_is_fitted(self)
        folder = Path(folder)
        save_model(
            folder,
            self.model_.method,
            name=self.method,
            settings=self.model_.facts["settings"],
            backbone=self.model_.facts["backbone"],
            class_names=[str(c) for c in self.classes_],
            card=f"# {self.method}\n\n{len(self.known_)} known classes of {len(self.classes_)}.\n",
        )
        facts = {
            "parameters": self.get_params(),
            "known": [c.item() if isinstance(c, np.generic) else c for c in self.known_],
        }
        write_json(folder / "estimator.json", facts)

    @classmethod
    def load(cls, folder: str | Path) -> CategoryDiscovery:
        """Read what `save` wrote; predictions are the same, bit for bit."""
        folder = Path(folder)
        model = load_model(folder)
        facts = read_json(folder / "estimator.json")
        self = cls(**facts["parameters"])
        self.model_, self.known_ = model, facts["known"]
        self.classes_ = class_names(self.known_, model.method.task.n_classes)
        if isinstance(model.backbone, Vectors):
            self.n_features_in_ = model.backbone.feature_dim
        counts = model.method.class_counts
        self.class_counts_ = None if counts is None else counts.numpy()
        return self

    def _read(self, X: Any) -> tuple[Backbone, TokenSource, Any]:
        """Backbone, tokens and, for a folder, the labels it holds."""
        if not is_images(X):
            X = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
            return Vectors(X.shape[1]), ReadyTokens(X, noise=VECTOR_NOISE), None
        table = table_from(X)
        backbone = load_backbone(self.backbone, image_size=self.image_size)
        choose("method", self.method, METHODS)
        strong = "strong" in METHODS[self.method].method.views
        bank = build_bank(
            table,
            np.arange(len(table)),
            backbone,
            n_views=self.views,
            strong_views=self.views if strong else 0,
            seed=self.random_state,
        )
        own = [table.class_names[c] if c >= 0 else -1 for c in table.labels]
        return backbone, bank, own

    def _source(self, X: Any) -> TokenSource:
        """Tokens of new samples, test view only."""
        if not is_images(X):
            return ReadyTokens(validate_data(self, X, dtype=np.float32, reset=False))
        table, backbone = table_from(X), self.model_.backbone
        view = ViewSettings(kind="weak", image_size=backbone.image_size)
        return FreshTokens(table, np.arange(len(table)), backbone, view)

    def _estimate(self, backbone: Backbone, source: TokenSource, labels: IntArray) -> int:
        """The number of classes that explains the labels best."""
        n_known = int(labels.max(initial=-1)) + 1
        if n_known < 2:
            raise UserError("n_classes must be given: fewer than 2 classes are labeled")
        probe = TrainProbe(source, labels, self.random_state)
        features = torch.nn.functional.normalize(probe.run(backbone.new_tail()), dim=1)
        high = min(len(source), max(4 * n_known, n_known + 10))
        return estimate_n_classes(
            features, labels, low=n_known, high=high, seed=self.random_state
        ).n_classes

    def _trainer(
        self,
        backbone: Backbone,
        source: TokenSource,
        labels: IntArray,
        *,
        n_known: int,
        n_classes: int,
    ) -> Trainer:
        counts = np.bincount(labels[labels >= 0], minlength=n_known)
        own = settings_for(self.method, preset=self.preset, changes=self.settings or {})
        asked = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
        }
        recipe = recipe_for(self.method, preset=self.preset, changes=asked)
        task = Task(n_classes, n_known, tuple(counts.tolist()), len(source), recipe.epochs)
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            method = build_method(self.method, task, backbone, own)
        return Trainer(method, TrainingData(source, labels), recipe, seed=self.random_state)

    def _keep(self, trainer: Trainer, backbone: Backbone, known: list[Any]) -> None:
        from bacon_gcd.model import Model

        method = trainer.method
        self.known_ = known
        self.classes_ = class_names(known, method.task.n_classes)
        facts = {
            "settings": dataclasses.asdict(method.settings),
            "backbone": describe_backbone(backbone, tuned="block"),
        }
        self.model_ = Model(method, backbone, tuple(str(c) for c in self.classes_), facts)
        ids = np.array(trainer.probe.run(self.model_.predictor.logits).argmax(dim=1))
        held = trainer.data.labels >= 0
        ids[held] = trainer.data.labels[held]  # labeled samples never leave their class
        self.labels_ = self._spoken(ids)
        counts = method.class_counts
        estimated = np.bincount(ids, minlength=len(self.classes_))
        self.class_counts_: npt.NDArray[Any] | None = (
            estimated if counts is None else counts.numpy().copy()
        )

    def _logits(self, X: Any) -> npt.NDArray[np.float32]:
        check_is_fitted(self)
        source = self._source(X)
        probe = TrainProbe(source, np.full(len(source), -1), self.random_state)
        logits: npt.NDArray[np.float32] = probe.run(self.model_.predictor.logits).float().numpy()
        return logits

    def _spoken(self, ids: IntArray) -> npt.NDArray[Any]:
        """Class ids as the caller speaks of classes: by name, or by integer."""
        if any(isinstance(c, str) for c in self.known_):
            return self.classes_[ids]
        first = int(max(self.known_, default=-1)) + 1
        novel = np.arange(first, first + len(self.classes_) - len(self.known_))
        return np.concatenate([np.array(self.known_, dtype=np.int64), novel])[ids]


def encode(y: Any, n_samples: int) -> tuple[list[Any], IntArray]:
    """Known classes in order, and (N,) their numbers, -1 = unlabeled."""
    if y is None:
        return [], np.full(n_samples, -1)
    values = np.asarray(y, dtype=object).reshape(-1)
    if len(values) != n_samples:
        raise UserError(f"y has {len(values)} values for {n_samples} samples")
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    told = [v for v in plain if not is_unlabeled(v)]
    by_name = any(isinstance(v, str) for v in told)
    known = sorted({str(v) if by_name else int(v) for v in told})
    number = {c: i for i, c in enumerate(known)}
    ids = [-1 if is_unlabeled(v) else number[str(v) if by_name else int(v)] for v in plain]
    return list(known), np.array(ids, dtype=np.int64)


def is_unlabeled(value: Any) -> bool:
    """-1, None, NaN, an empty string and "unlabeled" all mean: no label."""
    if isinstance(value, str):
        return value in ("", "-1", "unlabeled")
    return value is None or bool(value != value) or bool(value == -1)


def class_names(known: Sequence[Any], n_classes: int) -> npt.NDArray[np.object_]:
    """Known classes as given, then novel_000, ..."""
    names = np.empty(n_classes, dtype=object)
    names[: len(known)] = known
    names[len(known) :] = novel_names(n_classes - len(known))
    return names


def is_images(X: Any) -> bool:
    """A folder, files or an array of pictures; everything else is vectors."""
    if isinstance(X, str | Path):
        return True
    if isinstance(X, np.ndarray):
        return X.dtype == np.uint8 and X.ndim in (3, 4)
    return isinstance(X, Sequence) and len(X) > 0 and all(isinstance(x, str | Path) for x in X)


def table_from(X: Any) -> ImageTable:
    """The pictures as a table; with y given by position, none may be missing."""
    if isinstance(X, np.ndarray):
        return from_arrays(X)
    table = read_images(X)
    if not isinstance(X, str | Path) and table.quarantine:
        bad = table.quarantine[0]
        raise UserError(f"{bad.id}: {bad.reason}; leave it out of X and y")
    return table
