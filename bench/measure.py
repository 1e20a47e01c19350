"""Ratios measured in one run; never seconds to rely on."""

import time
from collections.abc import Callable

import torch


def seconds(
    work: Callable[[], object],
    *,
    repeats: int = 3,
    warm: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The best of a few: the least disturbed by whatever else the machine does.

    clock: `time.process_time` counts the computing of all threads, on a busy machine too.
    """
    if warm:
        work()
    times = []
    for _ in range(repeats):
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def backward_seconds(
    module: torch.nn.Module, function: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> float:
    """Forward and backward of a function of the module's."""

    def work() -> None:
        module.zero_grad(set_to_none=True)
        function(*inputs).sum().backward()

    return seconds(work)


def matmul_rate(dtype: torch.dtype) -> float:
    """Multiply-adds per second of a plain matrix product."""
    a, b = torch.randn(8192, 2304).to(dtype), torch.randn(2304, 512).to(dtype)
    return 8192 * 2304 * 512 / seconds(lambda: a @ b)


def pass_rate() -> float:
    """Bytes per second, read and written, of a plain pass over memory in place."""
    block = torch.zeros(1 << 26)
    return 2 * block.numel() * block.element_size() / seconds(lambda: block.add_(1.0))


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
