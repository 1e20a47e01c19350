"""Neighbors of large sets: ours against faiss-cpu, seconds at the recall that is reached.

OMP_NUM_THREADS=1 python -m bench neighbors [ROWS ...]; faiss-cpu is not a dependency. Processor
seconds, with building the index. Recall: the share of the ten nearest rows that is found.
"""

import sys
import time

import numpy as np
import torch

from bacon_gcd.classes.neighbors import exact_neighbors, neighbors_by_cells
from bacon_gcd.cluster import unit
from bench.measure import table

SIZES, DIM, N_CLASSES = (
    (50_000, 200_000),
    128,
    40,
)  # 128: the class space, where most are looked for
N_NEIGHBORS, ASKED_ROWS = 10, 500
PROBES = (4, 8, 16, 32)


def main():
    sizes = [int(word) for word in sys.argv[1:] if word.isdecimal()] or SIZES
    rows = []
    for size in sizes:
        features = planted(size)
        for name, find in ways().items():
            start = time.process_time()
            found = find(features)
            taken = time.process_time() - start
            rows.append({"rows": size, "way": name, "s": taken, "recall": recall(features, found)})
            print(table(rows[-1:]), flush=True)
    print(table(rows))


def planted(size):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N_CLASSES, DIM)).astype(np.float32)
    spread = rng.normal(size=(size, DIM)).astype(np.float32)
    return unit(torch.from_numpy(centers[rng.integers(N_CLASSES, size=size)] + 0.8 * spread))


def ways():
    ours = {"ours": lambda rows: neighbors_by_cells(rows, n_neighbors=N_NEIGHBORS, seed=0)}
    try:
        import faiss
    except ImportError:
        print("faiss-cpu is not installed")
        return ours
    faiss.omp_set_num_threads(torch.get_num_threads())
    cells = {f"faiss IVF, {n} probes": lambda rows, n=n: by_cells(faiss, rows, n) for n in PROBES}
    return ours | cells | {"faiss HNSW": lambda rows: by_graph(faiss, rows)}


def by_cells(faiss, features, n_probes):
    rows = features.numpy()
    n_cells = int(4 * len(rows) ** 0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(DIM), DIM, n_cells, faiss.METRIC_INNER_PRODUCT)
    index.cp.niter = 6
    index.train(rows)
    index.add(rows)
    index.nprobe = n_probes
    return index.search(rows, N_NEIGHBORS + 1)[1][:, 1:]


def by_graph(faiss, features):
    index = faiss.IndexHNSWFlat(DIM, 16, faiss.METRIC_INNER_PRODUCT)
    index.add(features.numpy())
    return index.search(features.numpy(), N_NEIGHBORS + 1)[1][:, 1:]


def recall(features, found):
    asked = np.random.default_rng(0).choice(len(features), ASKED_ROWS, replace=False)
    exact = exact_neighbors(
        features[torch.from_numpy(asked)], features, n_neighbors=N_NEIGHBORS + 1
    )[:, 1:]
    hits = [len({*a} & {*b}) for a, b in zip(found[asked].tolist(), exact.tolist(), strict=True)]
    return float(np.mean(hits)) / N_NEIGHBORS


if __name__ == "__main__":
    main()
