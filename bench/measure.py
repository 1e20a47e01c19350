"""Ratios measured in one run; never seconds to rely on."""

import time
from collections.abc import Callable


def seconds(work: Callable[[], object], *, repeats: int = 3, warm: bool = True) -> float:
    """The best of a few: the least disturbed by whatever else the machine does."""
    if warm:
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def table(rows: list[dict[str, object]]) -> str:
    """Rows as aligned text."""
    columns = list(rows[0])
    cells = [columns] + [[_text(row[c]) for c in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return "\n".join(
        "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in cells
    )


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
