"""Photos that come after a run, with ready vectors that tell their kinds apart."""

import numpy as np

from bacon_gcd.data.images import read_images
from bacon_gcd.discovery.update import update
from tests.planted_photos import COLORS, picture

KINDS = (*COLORS, "pink", "teal")


def vectors(folder, path, *, seed=0):
    """Kinds, which file names begin with, as well separated vectors beside a folder."""
    rng = np.random.default_rng(seed)
    ids = read_images(folder).ids
    kinds = [KINDS.index(name.rsplit("/")[-1].split("-")[0]) for name in ids]
    np.save(path, (np.eye(8)[kinds] + 0.05 * rng.normal(size=(len(ids), 8))).astype(np.float32))
    return path


def photos(folder, kinds, *, n=4, first=500, label=""):
    """n pictures of each kind; only the vectors tell kinds without a color apart."""
    (folder / label).mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        for i in range(n):
            color = kind if kind in COLORS else "gray"
            number = first + 100 * KINDS.index(kind) + i
            picture(color, number).save(folder / label / f"{kind}-{number}.png")
    return folder


def add(small, kinds, *, run="run", out="grown", name="new", **more):
    photos(small / name, kinds, **more)
    return grow(small, run=run, out=out, name=name)


def grow(small, *, run="run", out="grown", name="new"):
    new = small / name
    return update(
        small / run, new, small / out, features=vectors(new, small / f"{name}.npy", seed=1)
    )


def sorted_as(run):
    return {row.file_name: row.class_name for row in run.rows}


def kind_of(run, kind):
    """The class that holds the images of a kind, which must be one."""
    (name,) = {row.class_name for row in run.rows if f"{kind}-" in row.file_name}
    return name
