"""Every experiment of the paper as data: what is run, and what the paper prints for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bacon_gcd.benchmark import paper_numbers as paper
from bacon_gcd.benchmark.paper_numbers import GROUPS, OLD_NEW_ALL
from bacon_gcd.config import UserError, choose
from bacon_gcd.data.datasets import DATASETS, find_dataset

HEADLINE = "headline"  # the block that a method's own paper reports


@dataclass(frozen=True)
class Row:
    """A line of a table: a method and how it is set."""

    label: str
    method: str
    preset: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A dataset and how it is split."""

    label: str
    dataset: str
    split: Mapping[str, Any] = field(default_factory=dict)
    """Of SplitSettings, without what is the dataset's own, so that tables share their runs."""


@dataclass(frozen=True)
class Experiment:
    """A table of the paper."""

    name: str
    title: str
    source: str
    """Where the paper has it."""
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    printed: paper.Numbers
    scores: tuple[str, ...] = OLD_NEW_ALL
    block: str = HEADLINE
    note: str = ""
    """What a reader of our numbers must know of this table alone."""

    def number(self, row: Row, column: Column) -> Mapping[str, float]:
        """What the paper prints for a cell; empty where it has none."""
        return self.printed.get(row.label, {}).get(column.label, {})

    def narrowed(
        self,
        *,
        datasets: Sequence[str] | None = None,
        methods: Sequence[str] | None = None,
        split: Mapping[str, Any] | None = None,
    ) -> Experiment:
        """The same with fewer rows and columns; a dataset that the paper lacks becomes a column.

        Args:
            datasets: names, folder:PATH for one's own; all columns unless given.
            methods: names of methods or labels of rows; all rows unless given.
            split: settings of the split, for datasets that the paper has no number for.
        """
        rows = self.rows if methods is None else _chosen_rows(self.rows, methods)
        columns = self.columns
        if datasets is not None:
            columns = tuple(c for name in datasets for c in self._columns_of(name, split or {}))
        elif split:
            raise UserError(f"--{next(iter(split))}: name the dataset it is for with --datasets")
        return replace(self, rows=rows, columns=columns)

    def _columns_of(self, dataset: str, split: Mapping[str, Any]) -> list[Column]:
        own = [column for column in self.columns if column.dataset == dataset]
        if own and not split:
            return own
        if find_dataset(dataset) is None or split:
            words = [f"{name} {value}" for name, value in split.items()]
            return [Column(", ".join([dataset, *words]), dataset, split)]
        plain = self.columns[0]  # another dataset of ours: split as the first column is
        return [Column(dataset, dataset, plain.split)]


def _chosen_rows(rows: Sequence[Row], names: Sequence[str]) -> tuple[Row, ...]:
    allowed = dict.fromkeys([*(row.method for row in rows), *(row.label for row in rows)])
    for name in names:
        choose("method", name, allowed)
    return tuple(row for row in rows if row.method in names or row.label in names)


BASELINES = {
    "ABC": "abc",
    "DARP": "darp",
    "TRSSL": "trssl",
    "ORCA": "orca",
    "SimGCD": "simgcd",
    "GCD": "gcd",
    "OpenCon": "opencon",
}
LATER = ("TRSSL", "ORCA", "SimGCD", "GCD", "OpenCon")  # the baselines of the appendix
CIFAR100 = "cifar100-lt"
IMAGENET100 = "imagenet100-lt"
OURS = (Row("BaCon-O", "bacon-o"), Row("BaCon-S", "bacon-s"))
RECOMMENDED = Row("BaCon-S recommended (ours)", "bacon-s", "recommended")
UNTRAINED = (
    Row("k-means (untrained)", "kmeans"),
    Row("anchored k-means (untrained)", "anchored-kmeans"),
)


def _baselines(names: Sequence[str]) -> tuple[Row, ...]:
    return tuple(Row(name, BASELINES[name]) for name in names)


def _bacon(label: str, **changes: Any) -> Row:
    return Row(label, "bacon-s", None, changes)


def _studied(
    name: str, letter: str, title: str, text: str, rows: Sequence[Row], note: str = ""
) -> Experiment:
    """An ablation of BaCon-S on CIFAR-100-LT."""
    column = Column("CIFAR-100-LT", CIFAR100)
    return Experiment(
        name=name,
        title=title,
        source=f"ablation ({letter})",
        rows=tuple(rows),
        columns=(column,),
        printed=paper.read(text, [column.label]),
        note=note,
    )


def _appendix(
    name: str, title: str, source: str, text: str, splits: Mapping[str, Mapping[str, Any]]
) -> Experiment:
    """A study of the appendix on CIFAR-100-LT; one column per split."""
    return Experiment(
        name=name,
        title=title,
        source=source,
        rows=(*_baselines(LATER), *OURS, RECOMMENDED),
        columns=tuple(Column(label, CIFAR100, split) for label, split in splits.items()),
        printed=paper.read(text, list(splits)),
    )


FOUR = {
    "CIFAR-10-LT": "cifar10-lt",
    "CIFAR-100-LT": CIFAR100,
    "ImageNet-100-LT": IMAGENET100,
    "Places-LT": "places-lt",
}
BALANCED, TAILED = "balanced", "long-tailed"
RATIOS: dict[str, dict[str, Any]] = {
    "ratio 20": {"ratio": 20.0},
    "ratio 50": {"ratio": 50.0},
    "ratio 100": {},
    "ratio 150": {"ratio": 150.0},
}

_ALL = (
    Experiment(
        name="table1",
        title="Existing methods on balanced and on long-tailed CIFAR-100",
        source="Table 1",
        rows=_baselines(("GCD", "SimGCD", "ABC", "DARP")),
        columns=(
            Column(BALANCED, CIFAR100, {"profile": "balanced"}),
            Column(TAILED, CIFAR100),
        ),
        printed=paper.read(paper.TABLE_1, [BALANCED, TAILED], GROUPS),
        scores=GROUPS,
    ),
    Experiment(
        name="table2",
        title="Test accuracy on four long-tailed datasets",
        source="Table 2",
        rows=(*_baselines(tuple(BASELINES)), *OURS, RECOMMENDED, *UNTRAINED),
        columns=tuple(Column(label, dataset) for label, dataset in FOUR.items()),
        printed=paper.read(paper.TABLE_2, list(FOUR)),
    ),
    Experiment(
        name="table3",
        title="Accuracy by class size and its spread on CIFAR-100-LT",
        source="Table 3",
        rows=(*_baselines(tuple(BASELINES)), *OURS, RECOMMENDED, *UNTRAINED),
        columns=(Column("CIFAR-100-LT", CIFAR100),),
        printed=paper.read(paper.TABLE_3, ["CIFAR-100-LT"], GROUPS),
        scores=GROUPS,
    ),
    Experiment(
        name="table4",
        title="CIFAR-100-LT with different imbalance ratios",
        source="Table 4",
        rows=(*_baselines(tuple(BASELINES)), *OURS, RECOMMENDED),
        columns=tuple(Column(label, CIFAR100, split) for label, split in RATIOS.items()),
        printed=paper.read(paper.TABLE_4, list(RATIOS)),
    ),
    Experiment(
        name="ablation-a",
        title="Where the class prior comes from; scores of the classifier branch",
        source="ablation (a), on ImageNet-100-LT",
        rows=tuple(
            _bacon(prior, prior=prior)
            for prior in ("labeled", "balanced", "classifier", "contrastive", "oracle")
        ),
        columns=(Column("ImageNet-100-LT", IMAGENET100), Column("CIFAR-100-LT", CIFAR100)),
        printed=paper.read(paper.ABLATION_A, ["ImageNet-100-LT"]),
        block="classifier",
    ),
    _studied(
        "ablation-b",
        "b",
        "Debiasing and sampling of pseudo-labels",
        paper.ABLATION_B,
        [
            _bacon("baseline", advice="none"),
            _bacon("vanilla", debias=0.0, sampling=False),
            _bacon("debiasing", sampling=False),
            _bacon("sampling", debias=0.0),
            _bacon("both"),
        ],
    ),
    _studied(
        "ablation-c",
        "c",
        "The loss that uses pseudo-labels",
        paper.ABLATION_C,
        [_bacon("baseline", advice="none"), _bacon("hard", advice="hard"), _bacon("soft")],
    ),
    _studied(
        "ablation-d",
        "d",
        "Epochs between two estimates of the class counts",
        paper.ABLATION_D,
        [_bacon(f"r = {r}", **({} if r == 10 else {"interval": r})) for r in (1, 5, 10, 25, 50)],
        note=(
            "r counts epochs of a run of 200 and is scaled to the length of ours, at least to 1: "
            "in 30 epochs r = 1 and r = 5 both estimate before every epoch"
        ),
    ),
    _studied(
        "ablation-e",
        "e",
        "Similarity of pseudo-labels",
        paper.ABLATION_E,
        [
            _bacon("L1", similarity="l1"),
            _bacon("L2", similarity="l2"),
            _bacon("cosine", similarity="cosine"),
            _bacon("dot"),
        ],
    ),
    _studied(
        "ablation-f",
        "f",
        "Strength of debiasing",
        paper.ABLATION_F,
        [
            _bacon(f"k = {k:g}", **({} if k == 0.5 else {"debias": k}))
            for k in (0, 0.25, 0.5, 1, 1.5)
        ],
    ),
    _appendix(
        "e1",
        "Number of known classes",
        "Appendix E.1",
        paper.APPENDIX_E1,
        {"20 known": {"known": 20}, "50 known": {"known": 50}, "80 known": {}},
    ),
    _appendix(
        "e2",
        "Labeled share of known classes",
        "Appendix E.2",
        paper.APPENDIX_E2,
        {"10 %": {"labeled_share": 0.1}, "30 %": {"labeled_share": 0.3}, "50 %": {}},
    ),
    _appendix(
        "e3",
        "Ratio of unlabeled images, labeled ones at 100",
        "Appendix E.3",
        paper.APPENDIX_E3,
        {
            f"unlabeled {ratio}": {} if ratio == 100 else {"unlabeled_ratio": float(ratio)}
            for ratio in (20, 50, 100, 150)
        },
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}


def find_experiment(name: str) -> Experiment:
    """The experiment of this name; an unknown name lists the choices."""
    return EXPERIMENTS[choose("experiment", name, EXPERIMENTS)]


# Where the paper contradicts itself

TOLERANCE = 0.15  # of percentages rounded to one digit, after weighting


def contradictions() -> list[str]:
    """Numbers of the paper that cannot all be right, found by arithmetic; one line each."""
    return [*_wrong_means(), *_different_twice()]


def _printed() -> Iterator[tuple[Experiment, Row, Column, Mapping[str, float]]]:
    for experiment in _ALL:
        for row in experiment.rows:
            for column in experiment.columns:
                if number := experiment.number(row, column):
                    yield experiment, row, column, number


def _wrong_means() -> Iterator[str]:
    """All must be the mean of old and new, weighted by classes: test sets are balanced."""
    for experiment, row, column, number in _printed():
        dataset = DATASETS[column.dataset]
        known, total = column.split.get("known", dataset.n_known), dataset.n_classes
        mean = (known * number["old"] + (total - known) * number["new"]) / total
        if abs(mean - number["all"]) > TOLERANCE:
            yield (
                f"{experiment.source}, {row.label}, {column.label}: all {number['all']:.1f}, but "
                f"{known} old classes at {number['old']:.1f} and {total - known} new ones at "
                f"{number['new']:.1f} make {mean:.1f}"
            )


def _different_twice() -> Iterator[str]:
    """One run printed in several tables must have one number in all of them."""
    seen: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for experiment, row, column, number in _printed():
        if experiment.block != HEADLINE:
            continue
        run = (row.method, str(dict(row.changes)), column.dataset, str(dict(column.split)))
        for score, value in number.items():
            places = seen.setdefault((*run, score), {})
            places.setdefault(f"{value:.1f}", []).append(experiment.source)
    for (method, changes, dataset, _, score), places in seen.items():
        if len(places) > 1:
            said = "; ".join(f"{value} in {', '.join(where)}" for value, where in places.items())
            what = method if changes == "{}" else f"{method} {changes}"
            yield f"{what} on {dataset}, {score}: {said}"
