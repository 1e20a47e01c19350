"""What a cell is called, and the version of the engine that its results carry."""

import string

import numpy as np
import pytest
import torch.nn.functional as F

from bacon_gcd.benchmark.cells import ENGINE
from bacon_gcd.benchmark.grid import Request
from bacon_gcd.classes.placed import place_classes
from tests.planted import planted

PLACED = {
    6: (
        "000000000002000000000.002.11102.1.2222222222222222222.3..2.........................."
        "....................................................................",
        "0800020.40820d..116.......6.2222222222.22.3.3.3...3..3.333..444444444.444.53.....666"
        "666.6666666666.66.7.0.7...7....888888..82.8888d8.9..99.99.9........3b6bbb.bbbb.b6bbb"
        "b.c.ccccccc.c.ccdc...c.ccc24ddddddbddddd.dd....d..h..2...6.......d..0..hhh..8.hhhh6h"
        "8c..2..j..jcjj.jjjjjj....j...d....3c............7..b...d.d......2...b..........246.."
        "..b...6....86.....6.........8.......6.......6.............h.d.......6b.cb....h6....."
        "3..3....j8....c.....0........jc...6.42..8d.b.6.2d.j..b..d.c..h9.8...b..8..cdj....dcd"
        "...",
    )
}
"""By version, classes of the unlabeled images of a problem of few and of one of many classes, which
overlap; a dot is a new class: their order is by size, and hardly differing ones would change it."""
LETTERS = string.digits + string.ascii_letters


@pytest.mark.parametrize(("number", "n_classes", "n_known"), [(0, 8, 4), (1, 30, 20)])
def test_an_engine_that_places_images_otherwise_has_a_version_of_its_own(
    number, n_classes, n_known
):
    """Failed? Then results compare no longer: raise ENGINE, and store here what it places now."""
    problem = planted(n_classes=n_classes, n_known=n_known, dim=12 * n_known, spread=0.8, seed=0)
    features = F.normalize(problem.data.source.test(np.arange(len(problem.true))), dim=1)
    labels = problem.data.labels
    found = place_classes(features, labels, n_classes=n_classes, n_known=n_known, seed=0)
    placed = [LETTERS[c] if c < n_known else "." for c in found.class_ids[labels < 0]]
    moved = sum(a != b for a, b in zip(placed, PLACED[ENGINE][number], strict=True))
    assert moved <= len(placed) // 75  # images on a border may move with another BLAS


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
