"""What edges beside the backbone are worth where networks of photographs see little.

BENCH_FONTS=FOLDER python -m bench.edges   On random questions of handwritten digits (8 px, from
scikit-learn), and of letters in the TrueType fonts of a folder: a class is a letter, or a font, of
which edges know little. Prints how many images are right without and with edges, and how edges
count. Without BENCH_FONTS: digits alone.

Not one of `make bench`: features and questions take twenty minutes.
"""

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits

from bacon_gcd.backbone.edges import N_VALUES
from bacon_gcd.classes.beside import both, mutual_agreement, weigh_second
from bacon_gcd.classes.find import answered
from bacon_gcd.classes.question import Question
from bacon_gcd.data.images import from_arrays
from bench.discovery import shares
from bench.discovery_sets import described
from bench.measure import table
from bench.telling import drawn

N_QUESTIONS, SEED = 40, 11  # of each set
N_FONTS, SIDE = 30, 32
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabdefghkmnqrt"
FEW = {"digits": 60, "letters": 30, "fonts": 40}  # images of a class


def digits():
    found = load_digits()
    pixels = (255 - 15.9 * found.images).astype(np.uint8)
    return np.repeat(pixels[..., None], 3, axis=3), found.target


def drawn_letters():
    """(N, 32, 32, 3) pictures of letters, (N,) the letter and (N,) the font of each."""
    folder = Path(os.environ["BENCH_FONTS"])
    families = {}
    for path in sorted(folder.rglob("*.ttf")):
        families.setdefault(ImageFont.truetype(path, 8).getname()[0], path)
    fonts = list(families.values())[:N_FONTS]
    found = [
        (picture(letter, ImageFont.truetype(path, 64)), number, font)
        for font, path in enumerate(fonts)
        for number, letter in enumerate(LETTERS)
    ]
    pixels, letters, of_font = zip(*found, strict=True)
    return np.stack(pixels), np.array(letters), np.array(of_font)


def picture(letter, font):
    """(32, 32, 3) the letter, black on white, as large as it fits."""
    left, top, right, bottom = ImageDraw.Draw(Image.new("L", (8, 8))).textbbox((0, 0), letter, font)
    width, height = right - left, bottom - top
    side = max(width, height) + 12
    image = Image.new("L", (side, side), 255)
    corner = ((side - width) / 2 - left, (side - height) / 2 - top)
    ImageDraw.Draw(image).text(corner, letter, fill=0, font=font)
    return np.repeat(np.asarray(image.resize((SIDE, SIDE)))[..., None], 3, axis=2)


def sets():
    """Name -> pictures and classes."""
    found = {"digits": digits()}
    if "BENCH_FONTS" in os.environ:
        pixels, letters, fonts = drawn_letters()
        found |= {"letters": (pixels, letters), "fonts": (pixels, fonts)}
    return found


def descriptions(name, pixels, classes):
    """(N, D + E) features with edges behind them of some images of each class, and (N,) classes."""
    rng = np.random.default_rng(0)
    some = [rng.permutation(np.flatnonzero(classes == c))[: FEW[name]] for c in np.unique(classes)]
    rows = np.concatenate(some)
    x = described(f"{name}-of-edges", from_arrays(pixels), rows, classes)
    return x, classes[rows]


def asked(all_rows, classes):
    """A row per question: agreement, weight, and percent right without and with edges."""
    rng = np.random.default_rng(SEED)
    for _ in range(N_QUESTIONS):
        rows, true, labels, n_known = drawn(all_rows, classes, rng, every=rng.random() < 0.4)
        x, edges = (torch.from_numpy(p) for p in np.split(rows, [-N_VALUES], axis=1))
        found = weigh_second(Question(x, labels, 0), lambda some, all_=edges: all_[some])
        seen = both(x, edges, found.weight) if found.weight else x
        right = [
            shares(answered(Question(each, labels, 0), judge=True), true, labels, n_known)["all"]
            for each in (x, seen)
        ]
        agreement = mutual_agreement(x, edges, seed=0)
        yield {
            "agreement": agreement,
            "weight": found.weight,
            "without": right[0],
            "with": right[1],
        }


def main():
    torch.set_num_threads(1)
    lines = []
    for name, (pixels, classes) in sets().items():
        rows = list(asked(*descriptions(name, pixels, classes)))
        gains = np.array([row["with"] - row["without"] for row in rows])
        means = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        half = 1.96 * float(gains.std(ddof=1)) / len(gains) ** 0.5
        lines.append({"set": name} | means | {"gain": float(gains.mean()), "95 %": half})
        print(table(lines), flush=True)


if __name__ == "__main__":
    main()
