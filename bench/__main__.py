"""python -m bench [NAME ...]: run the benchmarks, all of them unless named."""

import importlib
import sys

BENCHMARKS = (
    "kmeans",
    "bank",
    "embedding",
    "decoding",
    "busy",
    "products",
    "resnet",
    "methods",
    "step",
    "parts",
    "discover",
    "forecast",
    "first_answer",
    "growth",
    "neighbors",
    "stored",
    "review",
    "discovery",
    "rules",
    "arriving",
    "features",
)


def main() -> None:
    names = [word for word in sys.argv[1:] if not word.isdecimal()] or BENCHMARKS
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"bench: {name!r} is not known; choose from {', '.join(BENCHMARKS)}")
    for name in names:
        print(f"\n## {name}\n", flush=True)
        importlib.import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
