"""Which cells a command of bacon benchmark is about: options that most of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bacon_gcd.cli.app import (
    ImageSide,
    KnownClasses,
    LabeledRatio,
    LabeledShare,
    Profile,
    Ratio,
    UnlabeledRatio,
    class_list,
)
from bacon_gcd.config import UserError

if TYPE_CHECKING:
    from bacon_gcd.benchmark.grid import Request

ProtocolName = Annotated[str, typer.Option("--protocol", help="paper, tail or vectors.")]
Quick = Annotated[bool, typer.Option("--quick", help="A toy grid on planted vectors.")]
BackboneName = Annotated[str, typer.Option("--backbone", help="See: bacon weights list.")]
Seeds = Annotated[str, typer.Option(help="One or more, such as 0,1,2.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Instead of the protocol's.")]
Datasets = Annotated[
    str | None, typer.Option(help="Only these columns, such as cifar10-lt,cifar100-lt.")
]
OneDataset = Annotated[
    str | None, typer.Option("--dataset", help="One of your own: folder:PATH, with --known.")
]
Methods = Annotated[str | None, typer.Option(help="Only these rows, such as gcd,bacon-s.")]
DEFAULT_BACKBONE = "resnet18.pypi_in1k"


@dataclass(frozen=True)
class Asked:
    """The options, as they were given."""

    protocol: ProtocolName = "paper"
    quick: Quick = False
    backbone: BackboneName = DEFAULT_BACKBONE
    seeds: Seeds = "0"
    epochs: Epochs = None
    datasets: Datasets = None
    dataset: OneDataset = None
    methods: Methods = None
    image_size: ImageSide = None
    profile: Profile = None
    ratio: Ratio = None
    labeled_ratio: LabeledRatio = None
    unlabeled_ratio: UnlabeledRatio = None
    known: KnownClasses = None
    labeled_share: LabeledShare = 0.5

    def request(self, *experiments: str) -> Request:
        """What they ask for, of these experiments; mistakes are told before anything is done."""
        from bacon_gcd.backbone.catalogue import find
        from bacon_gcd.benchmark.grid import Request

        find(self.backbone)
        own = self.dataset
        request = Request(
            experiments=experiments,
            split=self._split(),
            protocol="quick" if self.quick else self.protocol,
            backbone=self.backbone,
            seeds=seed_list(self.seeds),
            epochs=self.epochs,
            datasets=(own,) if own else _names("--datasets", self.datasets),
            methods=_names("--methods", self.methods),
            image_size=self.image_size,
        )
        request.tables()
        return request

    def _split(self) -> dict[str, Any]:
        """How images are split, where it is said."""
        names = ("profile", "ratio", "labeled_ratio", "unlabeled_ratio")
        split = {name: getattr(self, name) for name in names} | {"known": class_list(self.known)}
        if self.labeled_share != 0.5:
            split["labeled_share"] = self.labeled_share
        return {name: value for name, value in split.items() if value is not None}


@dataclass(frozen=True)
class AskedOfOneDataset(Asked):
    """The same, for a command that shows one column unless more are named."""

    datasets: Datasets = "cifar10-lt"


def seed_list(text: str) -> tuple[int, ...]:
    """--seeds 0,1,2 as numbers, each once."""
    try:
        seeds = tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        seeds = ()
    if not seeds or min(seeds) < 0:
        raise UserError(f"--seeds {text!r}: give numbers such as 0,1,2")
    return seeds


def _names(option: str, text: str | None) -> tuple[str, ...] | None:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise UserError(f"{option} {text!r}: give one name or more, with commas between them")
    return names or None
