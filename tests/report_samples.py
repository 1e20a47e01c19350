"""Small reports for tests: eleven images in three classes, friendly or hostile."""

from dataclasses import replace

import numpy as np
from PIL import Image

from bacon_gcd.classes.tree import ClassTree, Join
from bacon_gcd.report.contents import (
    ClassInfo,
    Duplicate,
    ReportData,
    Rows,
    Score,
    Suspect,
)

HOSTILE = (
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "\"><svg onload=window.hacked=3>'",
    "{{ 7 * 7 }}",
    "photo\u202egpj.exe",
    "broken\udcff.jpg",
    "=cmd|' /C calc'!A1",
    "\u2028line\x00zero\nnew",
    "https://example.invalid/" + "x" * 300,
    "<!--<script>",
    "url(https://example.invalid/a.png);}",
)


def picture(row: int) -> Image.Image:
    return Image.new("RGB", (40, 20 + row), (20 * row, 255 - 20 * row, 128))


def sample(names=("cat", "dog", "novel_000"), ids=None, **changes) -> ReportData:
    n = 11
    class_ids = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    labeled = np.array([True, True, False, False, True, False, False] + [False] * 4)
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    rows = Rows(
        ids=ids or [f"folder/image_{i}.png" for i in range(n)],
        class_ids=class_ids,
        labeled=labeled,
        confidence=np.linspace(0.2, 0.95, n),
        known_probability=np.where(labeled, 1.0, 1.05 - 0.1 * np.arange(n)),
        outlier=np.arange(n) == 2,
        xy=np.stack([np.cos(angle), np.sin(angle)], axis=1),
        neighbors=np.stack([(np.arange(n) + 1) % n, (np.arange(n) + 2) % n], axis=1),
    )
    known = (True, True, False)
    classes = [ClassInfo(name, known[c]) for c, name in enumerate(names)]
    values = {
        "title": "What was found",
        "rows": rows,
        "classes": classes,
        "thumbnail": picture,
        "scores": [Score("k-means", 40.0, 50.0, 30.0), Score("BaCon-S", 52.5, 60.0, None)],
        "suspected": [Suspect(0, names[0], names[1])],
        "duplicates": [Duplicate([1, 5], "exact")],
        "quarantine": [("bad.jpg", "truncated")],
        "tree": sample_tree(),
        "settings": {"seed": 0, "train": {"epochs": 3}},
    }
    return ReportData(**(values | changes))


def sample_tree() -> ClassTree:
    """Parts 3 and 4 are split off from cat and novel_000; three classes never join further."""
    members = np.array([0, 0, 3, 3, 1, 1, 1, 2, 2, 4, 4])
    return ClassTree(members, 5, (Join(0, 3, 0.2), Join(2, 4, 0.3)))


def two_novel() -> ReportData:
    """One known class and two novel ones that can be joined."""
    data = sample(names=("cat", "novel_000", "novel_001"))
    classes = [replace(info, known=number == 0) for number, info in enumerate(data.classes)]
    tree = ClassTree(data.tree.members, 5, (*data.tree.joins, Join(2, 1, 0.6)))
    return replace(data, classes=classes, tree=tree)


def hostile() -> ReportData:
    quarantine = [(name, name) for name in HOSTILE]
    settings = {name: name for name in HOSTILE}
    return sample(
        names=HOSTILE[:3],
        ids=list(HOSTILE),
        title=HOSTILE[0],
        quarantine=quarantine,
        settings=settings,
        notes=HOSTILE[:2],
        suspected=[Suspect(0, HOSTILE[1], HOSTILE[0])],
    )
