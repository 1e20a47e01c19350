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
    5: (
        "000000000002000000000.002.11102.1.2222222222222222222.3..2.........................."
        "....................................................................",
        "0800.2...0c2cd...11...18dd6.2222222222.22..93..3233..3.333.3424..444..44...c.....666"
        "666.6.66666.66j6667..c77.7....8888888.88288.88d8..9c99999.9j.....8.bb.bbbb.bbb.b3..b"
        "b.cccc.ccc2.cccc.ccccc.ccc2cdddddddddddd..d.dddd..86d2..96c..e.b.d..g.j8hh..8.9h.h62"
        ".c.cdc.j3.jjj..jj.jjj...........8..c....d.......0......d.j....3.2...b.b.......4.4..."
        "..b...62..686...............8.......2.......6..............c..3..7..66jc4..1c.6....8"
        "3....c..j.....c.......68...b6jcd..6.j...8...6b.2b2jjc..2d.......c...d.689b.dj....d.d"
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
