"""BaCon: find categories in images when only some classes have labels (arXiv 2310.01376)."""

from __future__ import annotations

import importlib
import os
from typing import Any

__version__ = "0.1.0"

# Public name -> module. Loaded on first use, so that `bacon --help` imports no torch.
_PUBLIC = {
    "CategoryDiscovery": "bacon_gcd.estimator",
    "ImageTable": "bacon_gcd.data.images",
    "UserError": "bacon_gcd.config",
    "discover": "bacon_gcd.discovery.pipeline",
}
__all__ = ["CategoryDiscovery", "ImageTable", "UserError", "__version__", "discover"]


def let_threads_sleep() -> None:
    """Threads that wait for others sleep instead of spinning, unless the environment says more.

    Beside another job, spinning makes the work of two threads five times slower. OpenMP reads this
    when torch is loaded; later it changes nothing.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bacon_gcd' has no attribute {name!r}")
    let_threads_sleep()
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
