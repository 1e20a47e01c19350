"""How a backbone should see a person's images: at which size, and how much of each."""

from __future__ import annotations

import numpy as np

from bacon_gcd.backbone.catalogue import find, library_of, own_image_size
from bacon_gcd.backbone.resnet import CONFIGS
from bacon_gcd.data.images import ImageTable

PHOTOGRAPH = 160  # shorter side, in pixels, from which images have details to lose
LARGE = 224  # what ResNets were trained on
LOOKED_AT = 32  # images whose size is looked at


def fitting_size(name: str, table: ImageTable) -> int:
    """The backbone's own size, or a larger one for a ResNet that is given photographs.

    On 256 px photographs ResNet-18 at 224 px sorted four points more images right than at 128 px
    (docs/discovery-evidence.md); on images of 64 px it made little difference.
    """
    own = own_image_size(name)
    if library_of(name) or find(name).architecture not in CONFIGS or own >= LARGE:
        return own
    return LARGE if are_photographs(table) else own


def seen_whole(table: ImageTable) -> bool:
    """Whether test views should be whole images. Ours.

    Small images are mostly cut out around what they show already, and a center crop loses some of
    it; in the center of a photograph its subject is larger (docs/discovery-evidence.md).
    """
    return not are_photographs(table)


def are_photographs(table: ImageTable) -> bool:
    """Whether most images are as large as photographs, by some of them."""
    rows = np.unique(np.linspace(0, len(table) - 1, LOOKED_AT).astype(int))
    sides = [min(table.image(row).size) for row in rows.tolist()]
    return bool(np.median(sides) >= PHOTOGRAPH)
