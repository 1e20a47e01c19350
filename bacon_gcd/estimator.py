"""The scikit-learn API: fit, predict, transform, save; -1 means unlabeled."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from bacon_gcd.backbone.bank import FreshTokens, ReadyTokens, TokenSource, build_bank
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone, untrained
from bacon_gcd.config import UserError, check_seed, choose
from bacon_gcd.data.images import ImageTable, from_arrays, read_images
from bacon_gcd.data.labels import encode, is_unlabeled
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.discovery.edges import Pictures, with_agreeing_edges
from bacon_gcd.discovery.image_size import fitting_size, seen_whole
from bacon_gcd.discovery.inputs import VECTOR_NOISE, pick_backbone
from bacon_gcd.discovery.learn import TRAINED, Learned, Plan, Samples, learn, short_plan
from bacon_gcd.discovery.settings import AUTO, Range
from bacon_gcd.methods import METHODS, recipe_for, settings_for
from bacon_gcd.metrics import anchored
from bacon_gcd.model import (
    Model,
    describe_backbone,
    load_model,
    novel_names,
    save_model,
)
from bacon_gcd.system.devices import find_device
from bacon_gcd.system.files import one_line_errors, read_json, write_json
from bacon_gcd.training.embed import embed

IntArray = npt.NDArray[np.int64]
TUNED = "block"


@dataclasses.dataclass(frozen=True)
class Stored:
    """estimator.json: what a model folder does not hold."""

    parameters: dict[str, Any]
    known: list[str | int | float | bool]
    class_counts: list[int] | None = None
    """Version 0.1 did not store them."""


class CategoryDiscovery(ClusterMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sort images or vectors into known classes and newly found ones, as `discover` does.

    The method trains the features; classes are counted and found in them by one engine.

    Args:
        method: see `bacon methods`.
        n_classes: known and novel together; None counts them. A novel class needs an unlabeled
            sample, so there may be fewer.
        backbone: catalogue name, hf:NAME_OR_FOLDER or timm:NAME for images; auto takes the best
            one whose weights are here. 2-D arrays of vectors need none.
        preset: of the method; None takes its first, and for bacon-s the short training of
            `discover`.
        epochs: length of training, 0 for none; None takes as many as `discover` does.
        image_size: side of the images; None takes the backbone's own.
        views: training views that are stored of each image, at least 2 for a training.
        batch_size, learning_rate: None takes the preset's own.
        settings: changes to the method's settings, e.g. {"alpha": 0.8}.
        random_state: decides everything that is drawn.
        device: auto, cpu, cuda, cuda:N or mps; None takes torch's default.

    Attributes:
        labels_: class of every training image; names where y had names, otherwise integers:
            known classes keep theirs, novel ones are numbered after the largest.
        classes_: known classes as given, then novel_000, novel_001, ...
        class_counts_: training images sorted into each class.
        model_: what `save` keeps.
    """

    def __init__(
        self,
        method: str = TRAINED,
        *,
        n_classes: int | None = None,
        backbone: str = AUTO,
        preset: str | None = None,
        epochs: int | None = None,
        image_size: int | None = None,
        views: int = 2,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str | torch.device | None = None,
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
        self.device = device

    def fit(self, X: Any, y: npt.ArrayLike | None = None) -> CategoryDiscovery:
        """Learn from X, of which y names some classes.

        X: a folder, a list of image files, uint8 images (N, H, W, 3), or vectors (N, D).
        y: (N,) integers or names, -1 = unlabeled; None takes a folder's own labels.
        """
        self._check_parameters()
        seed = self._seed()
        backbone, source, table = self._read(X, seed)
        known, labels = encode(own_labels(table) if y is None else y, len(source))
        allowed = self._allowed(len(known), labels)
        if table is not None and not self._n_epochs:
            pictures = Pictures(table, labels, backbone, source, seed)
            backbone, source = with_agreeing_edges(pictures)
        samples = Samples(source, labels, len(known), backbone)
        learned = learn(samples, self._plan(), allowed=allowed, seed=seed, device=self._device())
        self._keep(learned, samples, known)
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
        return self._of(self.model_.predictor.features, X)

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
        device = None if self.device is None else str(self.device)
        facts = {
            "parameters": self.get_params() | {"device": device},
            "known": [c.item() if isinstance(c, np.generic) else c for c in self.known_],
            "class_counts": self.class_counts_.tolist(),
        }
        with one_line_errors():
            self._save_model(folder)
            write_json(folder / "estimator.json", facts)

    def _save_model(self, folder: Path) -> None:
        save_model(
            folder,
            self.model_.method,
            name=self.model_.facts["method"],
            settings=self.model_.facts["settings"],
            backbone=self.model_.facts["backbone"],
            class_names=[str(c) for c in self.classes_],
            card=f"# {self.method}\n\n{len(self.known_)} known classes of {len(self.classes_)}.\n",
        )

    @classmethod
    def load(cls, folder: str | Path) -> CategoryDiscovery:
        """Read what `save` wrote; predictions are the same, bit for bit."""
        folder = Path(folder)
        with one_line_errors():
            model, path = load_model(folder), folder / "estimator.json"
            stored = read_json(path, Stored, what="what CategoryDiscovery.save wrote")
        self = cls(**checked_parameters(stored.parameters, cls().get_params(), path))
        if len(stored.known) != model.method.task.n_known:
            n_known = model.method.task.n_known
            raise UserError(f"{path}: {len(stored.known)} known classes; the model has {n_known}")
        self.model_, self.known_ = model, stored.known
        self.classes_ = class_names(self.known_, model.method.task.n_classes)
        if isinstance(model.backbone, Vectors):
            self.n_features_in_ = model.backbone.feature_dim
        if stored.class_counts is not None:
            self.class_counts_ = np.array(stored.class_counts, dtype=np.int64)
        return self

    def _check_parameters(self) -> None:
        """Refuse values that mean nothing."""
        choose("method", self.method, METHODS)
        for name, least in (("n_classes", 1), ("epochs", 0), ("image_size", 1), ("batch_size", 1)):
            check_whole(name, getattr(self, name), least, optional=True)
        check_whole("views", self.views, 0 if self.epochs == 0 else 2)
        rate = self.learning_rate
        if rate is not None and not (isinstance(rate, Real) and 0 < float(rate) < math.inf):
            raise UserError(f"learning_rate {rate!r}: give a number above 0")

    def _allowed(self, n_known: int, labels: IntArray) -> Range | None:
        """The number of classes that is asked for; each new one needs an unlabeled sample."""
        if self.n_classes is None:
            return None
        if not n_known <= self.n_classes <= len(labels):
            raise UserError(
                f"n_classes {self.n_classes} must be at least the {n_known} known classes "
                f"and at most the {len(labels)} samples"
            )
        n_classes = min(self.n_classes, n_known + int((labels < 0).sum()))
        return n_classes, n_classes

    def _seed(self) -> int:
        """The random state as a seed; an integer is its own."""
        given = self.random_state
        if isinstance(given, int | np.integer):
            check_seed("random_state", int(given))
            return int(given)
        return int(check_random_state(given).randint(2**31))

    def _device(self) -> torch.device | None:
        return None if self.device is None else find_device(self.device)

    def _read(self, X: Any, seed: int) -> tuple[Backbone, TokenSource, ImageTable | None]:
        """Backbone, tokens and, of images, where they are."""
        if not is_images(X):
            X = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)
            vectors = Vectors(X.shape[1], device=self._device())
            return vectors, ReadyTokens(X, noise=VECTOR_NOISE), None
        table = table_from(X)
        name = pick_backbone(self.backbone)
        size = self.image_size or (None if self._n_epochs else fitting_size(name, table))
        backbone = load_backbone(
            name,
            image_size=size,
            tuned=self._tuned(name),
            uncropped=not self._n_epochs and seen_whole(table),
            device=self._device(),
        )
        views = self.views if self._n_epochs else 0
        strong = "strong" in METHODS[self.method].method.views
        bank = build_bank(
            table,
            np.arange(len(table)),
            backbone,
            n_views=views,
            strong_views=views if strong else 0,
            seed=seed,
        )
        return backbone, bank, table

    @property
    def _n_epochs(self) -> int:
        return self.epochs or 0  # as in the default effort of `discover`

    def _tuned(self, backbone: str) -> str:
        """The part of the backbone that is trained; without training, as in `discover`."""
        return TUNED if self._n_epochs else untrained(backbone)

    def _plan(self) -> Plan:
        """The short training of `discover`, or the method as its preset has it."""
        epochs = self._n_epochs
        size, rate = self.batch_size, self.learning_rate  # of numpy, too
        asked = {
            "batch_size": None if size is None else int(size),
            "learning_rate": None if rate is None else float(rate),
        }
        if self.method == TRAINED and self.preset is None:
            return short_plan(epochs, settings=self.settings, **asked)
        own = settings_for(self.method, preset=self.preset, changes=self.settings or {})
        recipe = recipe_for(self.method, preset=self.preset, changes=asked | {"epochs": epochs})
        return Plan(self.method, own, recipe)

    def _source(self, X: Any) -> TokenSource:
        """Tokens of new samples, test view only."""
        if not is_images(X):
            return ReadyTokens(validate_data(self, X, dtype=np.float32, reset=False))
        table, backbone = table_from(X), self.model_.backbone
        view = ViewSettings(kind="weak", image_size=backbone.image_size)
        return FreshTokens(table, np.arange(len(table)), backbone, view)

    def _keep(self, learned: Learned, samples: Samples, known: list[Any]) -> None:
        answer = learned.answer
        method = learned.method
        method.set_centroids(answer.centroids, temperature=answer.temperature)
        self.known_ = known
        self.classes_ = class_names(known, method.task.n_classes)
        facts = {
            "method": learned.name,
            "settings": dataclasses.asdict(method.settings),
            "backbone": describe_backbone(
                samples.backbone, tuned=self._tuned(samples.backbone.name)
            ),
        }
        self.model_ = Model(method, samples.backbone, tuple(map(str, self.classes_)), facts)
        logits = embed(self.model_.predictor.logits, samples.tokens, device=self._device())
        # Labeled samples never leave their class.
        ids = np.where(samples.labels >= 0, samples.labels, logits.argmax(dim=1).cpu().numpy())
        self.labels_ = self._spoken(ids)
        self.class_counts_ = np.bincount(ids, minlength=len(self.classes_))

    def _logits(self, X: Any) -> npt.NDArray[np.float32]:
        check_is_fitted(self)
        return self._of(self.model_.predictor.logits, X)

    def _of(self, function: Callable[[Tensor], Tensor], X: Any) -> npt.NDArray[np.float32]:
        """A function of the tokens of new samples."""
        values = embed(function, self._source(X), device=self._device())
        array: npt.NDArray[np.float32] = values.float().cpu().numpy()
        return array

    def _spoken(self, ids: IntArray) -> npt.NDArray[Any]:
        """Class ids as the caller gave them: by name, or by integer."""
        if any(isinstance(c, str) for c in self.known_):
            return self.classes_[ids]
        first = int(max(self.known_, default=-1)) + 1
        novel = np.arange(first, first + len(self.classes_) - len(self.known_))
        return np.concatenate([np.array(self.known_, dtype=np.int64), novel])[ids]


def check_whole(name: str, value: Any, least: int, *, optional: bool = False) -> None:
    """Refuse what is not a whole number of at least `least`."""
    if optional and value is None:
        return
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        choices = f"a whole number from {least}{', or None' if optional else ''}"
        raise UserError(f"{name} {value!r}: give {choices}")


def checked_parameters(
    given: Mapping[str, Any], names: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    """The parameters of an estimator; an unknown name is one line."""
    for name in given:
        choose(f"{path}: parameter", name, sorted(names))
    return dict(given)


def class_names(known: Sequence[Any], n_classes: int) -> npt.NDArray[np.object_]:
    """Known classes as given, then novel_000, ...; names that are taken are passed over."""
    names = np.empty(n_classes, dtype=object)
    names[: len(known)] = known
    names[len(known) :] = novel_names(n_classes - len(known), taken=map(str, known))
    return names


def is_images(X: Any) -> bool:
    """A folder, files or an array of pictures; everything else is vectors."""
    if isinstance(X, str | Path):
        return True
    if isinstance(X, np.ndarray):
        return X.dtype == np.uint8 and X.ndim in (3, 4)
    return isinstance(X, Sequence) and len(X) > 0 and all(isinstance(x, str | Path) for x in X)


def own_labels(table: ImageTable | None) -> list[str | int] | None:
    """The labels that a folder holds, -1 = unlabeled; vectors have none."""
    if table is None:
        return None
    return [table.class_names[c] if c >= 0 else -1 for c in table.labels]


def table_from(X: Any) -> ImageTable:
    """The pictures as a table; with y given by position, none may be missing."""
    if isinstance(X, np.ndarray):
        return from_arrays(X)
    table = read_images(X)
    if not isinstance(X, str | Path) and table.quarantine:
        bad = table.quarantine[0]
        raise UserError(f"{bad.id}: {bad.reason}; leave it out of X and y")
    return table
