"""Names for new classes, proposed by a model that reads text; a person applies them, or not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bacon_gcd.backbone.text import load_text_model, reads_text
from bacon_gcd.config import UserError
from bacon_gcd.discovery.folder import FoundClass
from bacon_gcd.system.files import read_json, write_json

IntArray = npt.NDArray[np.int64]
Proposals = Mapping[int, Sequence[tuple[str, float]]]
"""Class id -> (name, confidence in 0..1), best first."""

N_PROPOSED = 3
MOST_IMAGES = 200  # of a class that are compared with the words
MOST_WORDS = 100_000
FILE = "names.json"


def refuse_names(words: str | None, backbone: str) -> None:
    """Refuse a list of names that cannot be read, or that the backbone cannot use."""
    if words is None:
        return
    read_words(Path(words))
    if not reads_text(backbone):
        raise UserError(
            f"--names {words}: backbone {backbone} does not read text; choose an hf: model of "
            "CLIP or SigLIP with its tokenizer"
        )


def read_words(path: Path) -> list[str]:
    """One name per line; empty lines and repeated names are passed over."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not in UTF-8"
        raise UserError(f"--names {path}: cannot be read as text: {reason}") from None
    words = list(dict.fromkeys(word for line in lines if (word := line.strip())))
    if not 2 <= len(words) <= MOST_WORDS:
        raise UserError(f"--names {path}: {len(words)} names; give 2 to {MOST_WORDS}, one per line")
    return words


def propose(
    features: Tensor,
    class_ids: IntArray,
    classes: Sequence[FoundClass],
    *,
    backbone: str,
    words: str | None,
) -> Proposals:
    """Names for the new classes of a run; none where the backbone does not read text.

    Args:
        features: (N, D) of the untrained backbone.
        words: file of names; the list that comes with the package unless given.
    """
    new = [number for number, each in enumerate(classes) if not each.known]
    if not new or not reads_text(backbone):
        return {}
    listed = read_words(Path(words) if words else Path(str(files("bacon_gcd.data") / "words.txt")))
    model = load_text_model(backbone)
    rows = [np.flatnonzero(class_ids == number)[:MOST_IMAGES] for number in new]
    images = [model.images(features[torch.from_numpy(each)]) for each in rows]
    shares = word_shares(images, model.words(listed), model.scale)
    taken = {plain(each.name) for each in classes if each.known}
    best = best_words(shares, listed, taken=taken)
    return {classes[number].id: found for number, found in zip(new, best, strict=True)}


def word_shares(images: Sequence[Tensor], words: Tensor, scale: float) -> Tensor:
    """(C, W) mean probability of each word over the images of each class.

    Args:
        images: for each class (n, P) unit rows.
        words: (W, P) unit rows.
        scale: what cosines are multiplied with before the softmax.
    """
    return torch.stack([(scale * rows @ words.T).softmax(dim=1).mean(dim=0) for rows in images])


def best_words(
    shares: Tensor, words: Sequence[str], *, taken: set[str]
) -> list[list[tuple[str, float]]]:
    """For each class the likeliest words that are no known class's name, with their share."""
    order = shares.argsort(dim=1, descending=True, stable=True).tolist()
    free = [plain(word) not in taken for word in words]
    picked = [[w for w in each if free[w]][:N_PROPOSED] for each in order]
    return [
        [(words[w], round(float(share[w]), 4)) for w in each]
        for each, share in zip(picked, shares, strict=True)
    ]


def plain(name: str) -> str:
    """A name without case, underscores and hyphens, to tell whether two are the same."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


class ProposedNames(TypedDict):
    """An entry of names.json."""

    id: int
    names: list[tuple[str, float]]


def write_names(folder: Path, proposals: Proposals) -> None:
    """Write names.json; nothing where nothing is proposed."""
    if proposals:
        listed = [{"id": number, "names": list(found)} for number, found in proposals.items()]
        write_json(folder / FILE, listed)


def read_names(folder: Path) -> Proposals:
    """What `write_names` wrote; nothing where there is no such file."""
    try:
        stored = read_json(folder / FILE, list[ProposedNames], what="the proposed names of a run")
    except FileNotFoundError:
        return {}
    return {each["id"]: each["names"] for each in stored}
