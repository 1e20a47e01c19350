"""What a cell is called, and the version of the engine that its results carry."""

import numpy as np
import pytest
import torch.nn.functional as F

from bacon_gcd.benchmark.cells import ENGINE
from bacon_gcd.benchmark.grid import Request
from bacon_gcd.classes.placed import place_classes
from tests.planted import planted

PLACED = {
    4: "00000000000200000000050026111026162222222222222222222536624546445465646754445444444444"
    "444444444444444444566666666666666666666655555555555555555555555555"
}
"""Classes of the unlabeled images of a problem with overlapping classes, by version."""


def test_an_engine_that_places_images_otherwise_has_a_version_of_its_own():
    """Failed? Then results compare no longer: raise ENGINE, and store here what it places now."""
    problem = planted(n_classes=8, n_known=4, dim=48, spread=0.8, seed=0)
    features = F.normalize(problem.data.source.test(np.arange(len(problem.true))), dim=1)
    labels = problem.data.labels
    found = place_classes(features, labels, n_classes=8, n_known=4, seed=0)
    expected = np.array([int(digit) for digit in PLACED[ENGINE]])
    moved = (found.class_ids[labels < 0] != expected).sum()
    assert moved <= 2  # of 157: images on a border may move with another BLAS


@pytest.mark.parametrize(
    ("experiment", "row", "label"),
    [
        ("table2", "gcd", "gcd adapted on cifar100-lt, seed 0"),
        ("ablation-d", "r = 5", "bacon-s released on cifar100-lt, interval 5.0, seed 0"),
        ("e1", "gcd", "gcd adapted on cifar100-lt, known 20, seed 0"),
    ],
)
def test_a_cell_is_told_by_what_its_row_and_column_change(experiment, row, label):
    request = Request((experiment,), "vectors", methods=(row,))
    assert label in [cell.label for cell in request.cells()]
