"""A trained model as a folder: safetensors, JSON and a card. It sorts tomorrow's images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save
from torch import Tensor

from bacon_gcd import __version__
from bacon_gcd.backbone.bank import (
    FreshTokens,
    ReadyTokens,
    TokenSource,
    banks_dir,
    build_bank,
)
from bacon_gcd.backbone.base import Backbone
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.classes.assign import choose_side, fits_nowhere, probability_known
from bacon_gcd.classes.sorter import OUTLIER, Sorter
from bacon_gcd.config import UserError, checked_as, settings_from
from bacon_gcd.data.images import ImageTable
from bacon_gcd.data.vector_files import read_features
from bacon_gcd.data.views import ViewSettings
from bacon_gcd.methods import METHODS, settings_for
from bacon_gcd.methods.base import Method, Predictor, Task
from bacon_gcd.methods.stored import load_state
from bacon_gcd.system.devices import Device
from bacon_gcd.system.files import (
    read_json,
    read_tensors,
    sha256_of,
    writable,
    write_atomic,
    write_json,
)
from bacon_gcd.system.processes import gather_rows, n_processes, share
from bacon_gcd.system.progress import progress

FORMATS = (1, 2)  # from 2 on there may be a sorter
CENTROID_METHOD = "anchored-kmeans"  # sorts by centroids alone, needs no training
CHUNK = 256  # images that are sorted at a time
LEAST_STORED = 8  # images whose features are kept for the next command
WEIGHTS, FACTS, CARD = "model.safetensors", "model.json", "README.md"
SORTER = "sorter.safetensors"


@dataclass(frozen=True, eq=False)
class Answers:
    """One entry per image."""

    ids: tuple[str, ...]
    class_ids: npt.NDArray[np.int64]
    names: tuple[str, ...]
    known: npt.NDArray[np.bool_]
    confidence: npt.NDArray[np.float32]
    known_probability: npt.NDArray[np.float64]
    """Of all known classes together."""
    outlier: npt.NDArray[np.bool_] | None
    """It fits no class; None: the model has nothing to tell it by."""
    outlier_score: npt.NDArray[np.float64] | None
    """0 to 1, see `classes.sorter`; None: the model has no sorter."""
    probabilities: npt.NDArray[np.float32]
    """(N, C) of each class."""


@dataclass(frozen=True)
class Model:
    """A method with its backbone and the names of its classes."""

    method: Method
    backbone: Backbone
    class_names: tuple[str, ...]
    """Known names first, then novel_000, ..."""
    facts: Mapping[str, Any]
    sorter: Sorter | None = None
    """Sorts by evidence, as `discover` does; without one the method itself answers."""

    @property
    def predictor(self) -> Predictor:
        """Class ids, probabilities and features of tokens."""
        return self.method.predictor()

    @property
    def centroids(self) -> Tensor:
        """(C, D) unit rows, one for each class."""
        return self.method.centroids

    @property
    def temperature(self) -> float:
        """Of the softmax of the cosines with the centroids that gives the confidence."""
        return float(self.method.temperature)

    @property
    def radii(self) -> npt.NDArray[np.float64] | None:
        """(C,) distance to its nearest centroid beyond which an image is an outlier."""
        stored = self.facts.get("radii")
        return None if stored is None else np.array(stored, dtype=np.float64)

    @property
    def threshold(self) -> float | None:
        """Of the probability that makes an image known; None: the best class decides."""
        return self.facts.get("threshold")

    @torch.no_grad()
    def features(self, source: TokenSource) -> Tensor:
        """(N, D) unit features of images whose tokens are at hand."""
        own = share(len(source))
        rows = [self.predictor.features(tokens) for tokens in chunks(source, own)]
        return gather_rows(torch.cat(rows)[: own.stop - own.start], len(source))

    def predict(self, table: ImageTable, *, workers: int = 0) -> Answers:
        """Sort the images of a table."""
        source = tokens_for(self.backbone, table, workers=workers, stored=False)
        return self.answer(table.ids, source)

    @torch.no_grad()
    def answer(self, ids: tuple[str, ...], source: TokenSource) -> Answers:
        """Sort images whose tokens are at hand, a chunk at a time; processes share them out."""
        answer = self._by_method if self.sorter is None else partial(self._sorted, self.sorter)
        found = [answer(tokens) for tokens in chunks(source, share(len(source)))]
        sure, outlier, score = (_of_all(part, len(source)) for part in zip(*found, strict=True))
        assert sure is not None
        classes = choose_side(sure, self.method.task.n_known, self.threshold)
        return Answers(
            ids=ids,
            class_ids=classes,
            names=tuple(self.class_names[c] for c in classes),
            known=classes < self.method.task.n_known,
            confidence=sure[np.arange(len(classes)), classes],
            known_probability=probability_known(sure, self.method.task.n_known),
            outlier=outlier,
            outlier_score=score,
            probabilities=sure,
        )

    def _sorted(self, sorter: Sorter, tokens: Tensor) -> tuple[Any, Any, Any]:
        """Probabilities, outliers and their scores by the evidence."""
        features = self.predictor.features(tokens).float().cpu()
        with torch.device("cpu"):  # where a sorter is
            score = sorter.outlier_score(features)
            return sorter.probabilities(features), score >= OUTLIER, score

    def _by_method(self, tokens: Tensor) -> tuple[Any, Any, Any]:
        """The same by the method itself, and by the radii of its classes where it has them."""
        outlier = None
        if self.radii is not None:
            features = self.predictor.features(tokens)
            outlier = fits_nowhere(features, self.method.centroids, self.radii)
        return self.predictor.probabilities(tokens), outlier, None


def chunks(source: TokenSource, own: slice) -> Iterator[Tensor]:
    """Tokens of these images in order, some at a time, with a bar that shows the time left.

    At least one image, which tells the shape of what is made of it.
    """
    stop = max(own.stop, own.start + 1)
    with progress("sorting", stop - own.start) as advance:
        for start in range(own.start, stop, CHUNK):
            tokens = source.test(np.arange(start, min(start + CHUNK, stop)))
            yield tokens
            advance(len(tokens))


def _of_all(parts: Sequence[npt.NDArray[Any] | None], n_images: int) -> npt.NDArray[Any] | None:
    """(n_images, ...) from the parts of this process's share and the others'; None for Nones."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    own = share(n_images)
    rows = torch.from_numpy(np.concatenate(given)[: own.stop - own.start])
    array: npt.NDArray[Any] = gather_rows(rows, n_images).numpy()
    return array


def tokens_for(
    backbone: Backbone,
    table: ImageTable,
    features: str | Path | None = None,
    *,
    workers: int,
    stored: bool = True,
) -> TokenSource:
    """The trunk's tokens of a table's images, or ready vectors of them.

    stored: whether vectors that a frozen backbone makes are kept, and taken from where they are.
        Tokens of backbones with a trained part are large, so they are computed when asked for.
    """
    if isinstance(backbone, Vectors):
        if features is None:
            raise UserError("the run was made from ready vectors; give those of the new images too")
        vectors = _fitting(read_features(Path(features), table), backbone, features)
        return ReadyTokens(vectors, device=backbone.device)
    if features is not None:
        raise UserError(f"{features}: the run has backbone {backbone.name} and reads images itself")
    rows = np.arange(len(table))
    if stored and _worth_storing(backbone, table):
        return build_bank(table, rows, backbone, n_views=0, workers=workers)
    view = ViewSettings(kind="weak", image_size=backbone.image_size)
    return FreshTokens(table, rows, backbone, view, workers=workers)


def _worth_storing(backbone: Backbone, table: ImageTable) -> bool:
    """Whether a bank saves more than it costs, and can be made.

    Banks of a few images each, of a program that sorts every new one at once, would fill the cache.
    """
    small = len(backbone.token_shape) == 1
    return small and len(table) >= LEAST_STORED and n_processes() == 1 and writable(banks_dir())


def _fitting(
    vectors: npt.NDArray[np.float32], backbone: Backbone, path: str | Path
) -> npt.NDArray[np.float32]:
    if vectors.shape[1] != backbone.feature_dim:
        raise UserError(
            f"{path}: vectors of {vectors.shape[1]} values; the run has {backbone.feature_dim}"
        )
    return vectors


def by_centroids(method: Method, backbone: Backbone, task: Task) -> Method:
    """A method with the same features that sorts by centroids alone; they are still to be set."""
    new = METHODS[CENTROID_METHOD].method(task, backbone, settings_for(CENTROID_METHOD, changes={}))
    tail = method.get_submodule(method.clustered_tail)
    new.get_submodule(new.clustered_tail).load_state_dict(tail.state_dict())
    return new.eval()


def novel_names(n_novel: int, *, taken: Iterable[str] = ()) -> list[str]:
    """novel_000, novel_001, ... without the names that are taken."""
    used = set(taken)
    names = (f"novel_{number:03d}" for number in count())
    return list(islice((name for name in names if name not in used), n_novel))


def save_model(
    folder: Path,
    method: Method,
    *,
    name: str,
    settings: Mapping[str, Any],
    backbone: Mapping[str, Any],
    class_names: Sequence[str],
    card: str,
    radii: npt.ArrayLike | None = None,
    threshold: float | None = None,
    sorter: Sorter | None = None,
) -> None:
    """Write the model; the JSON with the checksums goes last, so a readable model is whole.

    Args:
        radii: (C,) see `Model.radii`; without them or a sorter the model cannot tell outliers.
        threshold: see `Model.threshold`.
        sorter: see `Model.sorter`.
    """
    state = {
        key: tensor.detach().contiguous()
        for key, tensor in method.state_dict().items()
        if key.split(".")[0] not in method.training_only
    }
    write_atomic(folder / WEIGHTS, save(state))
    if sorter is not None:
        write_atomic(folder / SORTER, save(sorter.tensors()))
    write_atomic(folder / CARD, card.encode())
    facts = {
        "format": FORMATS[-1],
        "bacon_gcd": __version__,
        "method": name,
        "settings": dict(settings),
        "task": dataclasses.asdict(method.task),
        "backbone": dict(backbone),
        "class_names": list(class_names),
        "radii": None if radii is None else np.asarray(radii, dtype=np.float64).tolist(),
        "threshold": threshold,
        "sha256": sha256_of(folder / WEIGHTS),
        "sorter": None if sorter is None else _described(sorter, folder / SORTER),
    }
    write_json(folder / FACTS, facts)


def load_model(folder: Path, *, device: Device = None) -> Model:
    """Read a model folder; nothing in it is executed."""
    facts = _read_facts(folder)
    task = settings_from(Task, facts["task"], where=str(folder / FACTS))
    backbone = backbone_from(facts["backbone"], device=device)
    own = settings_for(
        facts["method"],
        preset=next(iter(METHODS[facts["method"]].presets)),
        changes=facts["settings"],
    )
    with torch.device("cpu"):  # where the stored tensors are
        method = METHODS[facts["method"]].method(task, backbone, own)
    load_state(method, read_tensors(folder / WEIGHTS), spare=method.training_only)
    sorter = _read_sorter(folder, facts)
    method = method.to(backbone.device).eval()
    return Model(method, backbone, tuple(facts["class_names"]), facts, sorter)


def _described(sorter: Sorter, path: Path) -> dict[str, Any]:
    return {**sorter.facts(), "sha256": sha256_of(path)}


def _read_sorter(folder: Path, facts: Mapping[str, Any]) -> Sorter | None:
    """The sorter, if the model has one; one that does not fit the model is one line."""
    if (stored := facts.get("sorter")) is None:
        return None
    path = folder / SORTER
    _refuse_changed(path, stored["sha256"])
    try:
        return Sorter.from_stored(read_tensors(path), stored, n_classes=len(facts["class_names"]))
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: not the sorter of this model: {error}") from None


def backbone_from(facts: Mapping[str, Any], *, device: Device = None) -> Backbone:
    """The backbone a model was trained on, checked by its weights; precision may differ."""
    if facts["name"] == "vectors":
        return Vectors(facts["feature_dim"], device=device)
    found = load_backbone(
        facts["name"],
        image_size=facts["image_size"],
        tuned=facts["tuned"],
        uncropped=facts.get("uncropped", False),  # models of an earlier version saw centers
        edges=facts.get("edges", 0.0),
        device=device,
    )
    if found.weights != facts["weights"]:
        raise UserError(
            f"backbone {facts['name']}: weights differ from those the model was trained on "
            f"({found.weights} instead of {facts['weights']})"
        )
    for part in ("mean", "std"):
        ours, theirs = list(getattr(found, part)), facts.get(part)
        if theirs not in (None, ours):  # None: a model of an earlier version
            raise UserError(f"backbone {facts['name']}: {part} is {ours}; the model has {theirs}")
    return found


def describe_backbone(backbone: Backbone, *, tuned: str) -> dict[str, Any]:
    """What `backbone_from` needs."""
    return {
        "name": backbone.name,
        "image_size": backbone.image_size,
        "tuned": tuned,
        "uncropped": backbone.uncropped,
        "edges": backbone.edges,
        "feature_dim": backbone.feature_dim,
        "weights": backbone.weights,
        "mean": list(backbone.mean),
        "std": list(backbone.std),
    }


class StoredBackbone(TypedDict):
    """What model.json says of the backbone."""

    name: str
    image_size: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    tuned: str
    uncropped: NotRequired[bool]
    edges: NotRequired[Annotated[float, msgspec.Meta(ge=0, le=1_000)]]
    feature_dim: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    weights: str


class StoredSorter(TypedDict):
    """What model.json says of the sorter, beside its tensors."""

    temperature: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    n_neighbors: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    sha256: str


class StoredFacts(TypedDict):
    """What must be in model.json; it may hold more."""

    method: str
    settings: dict[str, Any]
    task: dict[str, Any]
    backbone: StoredBackbone
    class_names: list[str]
    sha256: str
    radii: NotRequired[list[float] | None]
    threshold: NotRequired[float | None]
    sorter: NotRequired[StoredSorter | None]


def _read_facts(folder: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = read_json(folder / FACTS, dict[str, Any], what="a model")
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no model in it; name a finished run of bacon discover or bacon train"
        ) from None
    except OSError as error:
        raise UserError(f"{folder}: not a model folder: {error}") from None
    if facts.get("format") not in FORMATS:
        known = " or ".join(map(str, FORMATS))
        raise UserError(f"{folder}: model format {facts.get('format')} is not {known}")
    stored = checked_as(StoredFacts, facts, where=f"{folder / FACTS}: not a model")
    if not 0 < len(stored["class_names"]) == stored["task"].get("n_classes"):
        raise UserError(f"{folder / FACTS}: task.n_classes is not the number of class names")
    radii = stored.get("radii")
    if radii is not None and len(radii) != len(stored["class_names"]):
        raise UserError(f"{folder / FACTS}: not one radius for each class")
    _refuse_changed(folder / WEIGHTS, facts["sha256"])
    if facts["method"] not in METHODS:
        raise UserError(f"{folder}: method {facts['method']!r} is not one of {', '.join(METHODS)}")
    return facts


def _refuse_changed(path: Path, sha256: str) -> None:
    if not path.exists() or sha256_of(path) != sha256:
        raise UserError(f"{path}: missing or damaged, its checksum is not the recorded one")
