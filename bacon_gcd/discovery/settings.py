"""What decides a discovery: its settings, how much work an effort is, and how options are read."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bacon_gcd.config import UserError, check_seed, choose, settings_from, to_toml

Range = tuple[int, int]
Tell = Callable[[str], None]
AUTO = "auto"
EFFORTS = ("quick", "normal", "thorough")
DEFAULT_EFFORT = "normal"


@dataclass(frozen=True)
class DiscoverSettings:
    """All that decides the result; config.toml of the run."""

    source: str
    labels: str | None = None
    features: str | None = None
    classes: str = AUTO
    """auto, a number, or a range such as 5-20; known and novel together."""
    threshold: float | None = None
    """Of the probability from which an image is known; None: its likeliest class decides."""
    backbone: str = AUTO
    image_size: int | None = None
    """Side of the images as the backbone sees them, in pixels."""
    effort: str = DEFAULT_EFFORT
    seed: int = 0
    names: str | None = None
    """File of names that may be proposed for new classes."""
    stored: str = "half"
    """How tokens are kept on disk; see `backbone.packing`."""
    views: int = 0
    epochs: int = 0
    edges: float = 0.0
    """How much edges of the images count beside the backbone; 0: not at all."""
    recut: str | None = None
    """The run whose features were sorted again."""
    refit: str | None = None
    """The run whose corrections were learned."""
    update: str | None = None
    """The run that images were added to."""
    added: Mapping[str, Mapping[str, str]] | None = None
    """Images that were added: what their ids begin with -> source, labels, features."""

    def __post_init__(self) -> None:
        check_seed("seed", self.seed)
        to_toml(dataclasses.asdict(self))  # refuses what config.toml cannot hold, before any work


def settings_of(config: Mapping[str, Any], where: str, **changes: Any) -> DiscoverSettings:
    """The settings of a finished run for one that is derived from it, with some changed."""
    settings = settings_from(DiscoverSettings, config, where=where)
    origin: dict[str, Any] = {"recut": None, "refit": None, "update": None}
    return dataclasses.replace(settings, **origin | changes)


@dataclass(frozen=True)
class Effort:
    """How much work is done on each image."""

    fitted: bool
    """Whether photographs are seen larger than the backbone's own size; see `fitting_size`."""
    views: int = 0
    """Crops that are stored of each image for training, beside the image as it is."""
    epochs: int = 0
    """0: the backbone's own features are used, see `weights.untrained`."""


def effort_for(name: str, n_images: int) -> Effort:
    """What quick, normal and thorough mean; small sets are trained on for longer."""
    efforts = {
        "quick": Effort(fitted=False),
        "normal": Effort(fitted=True),
        "thorough": Effort(fitted=True, views=4, epochs=min(max(50_000 // n_images, 10), 30)),
    }
    return efforts[choose("effort", name, efforts)]


def parse_classes(text: str) -> Range | None:
    """`auto` is None, `12` is (12, 12), `5-20` is (5, 20)."""
    if text == AUTO:
        return None
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not found:
        raise UserError(f"--classes {text!r}: give auto, a number, or a range such as 5-20")
    low, high = int(found[1]), int(found[2] or found[1])
    if low < 1:
        raise UserError(f"--classes {text!r}: there is at least 1 class")
    if low > high:
        raise UserError(f"--classes {text!r}: give the smaller number first, {high}-{low}")
    return low, high


def checked_threshold(threshold: float | None) -> float | None:
    """A share, or None."""
    if threshold is not None and not 0 <= threshold <= 1:
        raise UserError(f"--threshold {threshold}: give a number from 0 (all known) to 1")
    return None if threshold is None else float(threshold)  # not numpy's: TOML has plain ones


def silent(line: str) -> None:
    """Tell nobody."""
