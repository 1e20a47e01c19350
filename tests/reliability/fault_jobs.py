"""What the fault server can run: the command line, and an edit on the review page."""

import math
import sys
import tempfile
from pathlib import Path

import pytest

from tests.planted_photos import plant
from tests.small_backbone import use_small_backbone


def load_everything():
    """Put a tiny backbone in the place of the real one, and import what commands import late."""
    import bacon_gcd.review.session
    from bacon_gcd.backbone import pieces

    pieces.EVERY, pieces.SHARE = 0.0, math.inf  # the number of changes depends on no clock
    use_small_backbone(pytest.MonkeyPatch())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BACON_CACHE", folder)
        use_small_backbone(pytest.MonkeyPatch())
        bacon_gcd.discover(plant(Path(folder) / "photos"), Path(folder) / "run", workers=0)


def bacon(*words):
    from bacon_gcd.cli import main

    sys.argv = ["bacon", *words]
    main()


def edit(run, number):
    """Two edits as the page makes them."""
    from bacon_gcd.cli.app import errors_in_one_line
    from bacon_gcd.review.session import Session

    with errors_in_one_line():
        session = Session(run)
        session.edit({"kind": "confirm", "images": [int(number)]})
        session.edit({"kind": "move", "images": [int(number)], "to": 0})


JOBS = {"bacon": bacon, "edit": edit}
