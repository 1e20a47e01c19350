"""What a discovery found: before it is written (`Found`), and as a folder (`Discovery`)."""

from __future__ import annotations

import dataclasses
import html
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from bacon_gcd.classes.assign import Sorted
from bacon_gcd.classes.count import ClassNumber
from bacon_gcd.classes.reliability import Expected
from bacon_gcd.classes.sorter import OUTLIER, Sorter, fit_sorter
from bacon_gcd.classes.tree import ClassTree
from bacon_gcd.discovery.duplicates import Duplicates
from bacon_gcd.discovery.folder import DiscoverRun, FoundClass
from bacon_gcd.discovery.inputs import Inputs
from bacon_gcd.discovery.names import Proposals
from bacon_gcd.discovery.second import Second, none_of, second_of
from bacon_gcd.discovery.trial import Trial
from bacon_gcd.methods.base import Method
from bacon_gcd.system.files import read_json
from bacon_gcd.system.progress import working
from bacon_gcd.system.text import command, count

IntArray = npt.NDArray[np.int64]


class Discovery:
    """A finished discover run; shows itself in a notebook."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @cached_property
    def run(self) -> DiscoverRun:
        """The folder's contents as objects."""
        return DiscoverRun.load(self.folder)

    @property
    def table(self) -> pa.Table:
        """One row per image, as in predictions.parquet; `.to_pandas()` gives a data frame."""
        return pq.read_table(self.folder / "predictions.parquet")

    def report(self) -> Path:
        """The page to look at."""
        return self.folder / "report.html"

    def export(self, to: str | Path, *, how: str = "copy", dry_run: bool = False) -> dict[str, Any]:
        """Folders per class, as `bacon export` makes them."""
        from bacon_gcd.discovery.export import export, plan_export, summary

        plan = plan_export(self.run, how=how)
        if dry_run:
            return summary(plan, Path(to))
        return export(plan, Path(to), roots=self.run.roots)

    @cached_property
    def expected(self) -> Expected | None:
        """The accuracy that was measured with known classes hidden; None: it was not."""
        path = self.folder / "expected.json"
        if not path.exists():
            return None
        found: Expected = read_json(path, Expected, what="the expected accuracy of a run")
        return found

    def facts(self) -> dict[str, Any]:
        """The result in numbers."""
        classes = {each.name: int(each.count) for each in self.run.classes}
        return {
            "images": len(self.run.rows),
            "known": sum(each.known for each in self.run.classes),
            "novel": sum(not each.known for each in self.run.classes),
            "classes": classes,
            "outliers": sum(row.outlier for row in self.run.rows),
            "suspected": sum(row.suspected for row in self.run.rows),
            "duplicates": len(self._duplicates()),
            "expected": None if self.expected is None else dataclasses.asdict(self.expected),
            "report": str(self.report()),
        }

    def text(self) -> str:
        """The result in words, and what to do next."""
        facts = self.facts()
        sizes = ", ".join(f"{name} {count}" for name, count in facts["classes"].items())
        return (
            f"{facts['images']} images in {facts['known']} known and "
            f"{count(facts['novel'], 'new class', 'new classes')}: {sizes}\n"
            f"{self._expected_line()}"
            f"{count(facts['outliers'], 'outlier')}, "
            f"{count(facts['suspected'], 'suspected label error')}"
            f"{self._duplicates_part()}\n"
            f"Report: {facts['report']}\n"
            f"Next: open it in a browser; correct it with: "
            f"{command('bacon', 'review', self.folder)}; sort new images with: "
            f"{command('bacon', 'predict', self.folder, 'IMAGES')}"
        )

    def _duplicates(self) -> set[str]:
        """The names of all images that are there twice or more."""
        return {name for group in self.run.listed_duplicates() for name in group["files"]}

    def _duplicates_part(self) -> str:
        n_images = len(self._duplicates())
        return f", {n_images} images are there twice or more (duplicates.json)" if n_images else ""

    def _expected_line(self) -> str:
        found = self.expected
        if found is None:
            return self._unmeasured_line()
        low, high = found.interval
        return (
            f"Expect about {found.accuracy:.0%} of the images without a label to be right "
            f"({low:.0%} to {high:.0%})\n"
        )

    def _unmeasured_line(self) -> str:
        config = self.run.config
        if config.get("update") or config.get("recut"):  # measured, or not, in the run before
            return ""
        labeled = any(row.label for row in self.run.rows)
        why = "too few labels could be hidden" if labeled else "no image has a label"
        return (
            f"How many images are right was not measured: {why}; three labels or more for each of "
            "several classes are enough\n"
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(c.name)}</td><td>{'known' if c.known else 'novel'}</td>"
            f"<td>{c.labeled}</td><td>{c.count:.0f}</td></tr>"
            for c in self.run.classes
        )
        head = "<tr><th>class</th><th></th><th>labeled</th><th>images</th></tr>"
        where = html.escape(str(self.report()))
        return f"<p>{len(self.run.rows)} images; report: {where}</p><table>{head}{rows}</table>"

    def __repr__(self) -> str:
        return f"Discovery({str(self.folder)!r})"


@dataclass(frozen=True)
class SizedClass(FoundClass):
    """A class as classes.json lists it."""

    purity: float | None = None
    """The share of its images without a label that are expected to be right; None: there are none.

    It is only for readers of the file: no command reads it again."""


@dataclass(frozen=True, eq=False)
class Found:
    """The answer, before it is written."""

    inputs: Inputs
    method: Method
    name: str
    """Of the method."""
    classes: tuple[FoundClass, ...]
    """Known ones first; their sizes are counted when they are written."""
    next_id: int
    """The first id that no class has or had."""
    features: Tensor
    """(N, D) unit features that were clustered."""
    images: Sorted
    neighbors: IntArray
    xy: npt.NDArray[np.float32]
    """(N, 2) positions on the map."""
    duplicates: list[Duplicates]
    number: ClassNumber | None = None
    """How the classes were counted, if they were."""
    expected: Expected | None = None
    """What hidden classes say of the answer, if any could be hidden."""
    tree: ClassTree | None = None
    """Coarser and finer cuts, when they are those of an earlier run."""
    trial: Trial | None = None
    """What hidden classes said of the training; None: there was none, or they were too few."""
    certain: npt.NDArray[np.bool_] | None = None
    """(N,) rows that stay in their class in every cut; None: those with a label."""
    given: tuple[str, ...] | None = None
    """(N,) labels as they came, when classes have other names by now; "" = none."""
    sorter: Sorter | None = None
    """Sorts images to come, as the run sorted its own."""
    names: Proposals = field(default_factory=dict)
    """What new classes might be called."""
    second: Second | None = None
    """Second choices, where the probabilities of all images do not tell them."""

    @cached_property
    def class_names(self) -> list[str]:
        """Known names, then those of new classes."""
        return [each.name for each in self.classes]

    @property
    def certain_rows(self) -> npt.NDArray[np.bool_]:
        """(N,) rows that stay in their class in every cut."""
        found: npt.NDArray[np.bool_] = self.inputs.labels >= 0
        return found if self.certain is None else self.certain

    @property
    def second_choices(self) -> Second:
        """What else each image might be; nothing for those that are certain."""
        shares, class_ids = self.images.probabilities, self.images.class_ids
        if (found := self.second) is None:
            found = none_of(len(class_ids)) if shares is None else second_of(shares, class_ids)
        return found.without(self.certain_rows)

    @cached_property
    def sized_classes(self) -> list[SizedClass]:
        """The classes with their numbers of images and labels, and how sure they are."""
        sizes = np.bincount(self.images.class_ids, minlength=len(self.classes))
        labels = self.inputs.labels
        labeled = np.bincount(labels[labels >= 0], minlength=len(self.classes))
        return [
            SizedClass(
                **dataclasses.asdict(each) | {"labeled": int(labeled[c]), "count": float(sizes[c])},
                purity=self._purity(c),
            )
            for c, each in enumerate(self.classes)
        ]

    def _purity(self, class_id: int) -> float | None:
        """Mean confidence of the images of a class that have no label; None: there are none."""
        inside = (self.images.class_ids == class_id) & (self.inputs.labels < 0)
        return round(float(self.images.confidence[inside].mean()), 4) if inside.any() else None


def with_sorter(found: Found, *, seed: int) -> Found:
    """With the sorter of its classes, and the outliers among its images by the same measure."""
    images = found.images
    certain = found.certain_rows
    with working("outliers"):
        fitted = fit_sorter(
            found.features,
            images.class_ids,
            np.where(certain, images.class_ids, -1),
            found.neighbors,
            n_classes=len(found.classes),
            sure=None if certain.all() else float(images.confidence[~certain].mean()),
            seed=seed,
        )
    outlier = (fitted.outlier_score >= OUTLIER) & ~certain
    images = dataclasses.replace(images, outlier=outlier)
    return dataclasses.replace(found, images=images, sorter=fitted.sorter)
