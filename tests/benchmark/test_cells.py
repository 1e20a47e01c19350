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
    7: (
        "00.000000002000000000.0011111.1.1..222222222122222222333.3.........................."
        "....................................................................",
        "080.020.00c2cd...d...1.8.d..2222222222.22.393.33.333.3.33333424.44444244...c.....666"
        "666.6.66666.66j66.7..c7..77d.488888.8.88288.88888.9c..999.9...d.d..db.bbbb.bbb.b...b"
        "bbcccccccc2.cccccccccccccc22ddddddddddddd.ddcddd.c8d.2..c6c..e.b.d.gg.jchb.h8d9..h6h"
        ".b.cd..j..j4j..jj.jjj...........d.3c...3d..............d.j.2.33.2.....b.......4.4..."
        "2.b..hb...686..2.b..cc......8.......6.......6c.............c.83.....6b1c4.3.ch6....8"
        "3263.c2.4..3.6c....cb..6...b6jcd....j2..8...6b62d.jjc4.3d.....9cc...dd.89.cdj..3.d.d"
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
