"""What features say of classes: whole images or their centers, and how maps are pooled.

BACON_DATA=FOLDER python -m bench.views   a thousand images of each of the four sets that constants
are chosen on; EfficientNet-Lite0, image and mirror image, without whitening.

Not one of `make bench`: it takes a quarter of an hour.
"""

import numpy as np
import torch

from bacon_gcd.backbone.catalogue import LITE, cached
from bacon_gcd.backbone.efficientnet import MEAN, STD, EfficientNetLite, root_mean_square, used_of
from bacon_gcd.backbone.state import read_state
from bacon_gcd.classes.space import centered
from bacon_gcd.cluster import unit
from bacon_gcd.data.views import ViewSettings, normalize, render_views
from bench.discovery_sets import DEVELOPED_ON, chosen_rows, images_of
from bench.measure import table
from bench.whitening import same_class

N_IMAGES, BATCH, LABELS, DRAWS = 1000, 20, 3, 15
WEAK = ViewSettings("weak", 224)
SEEN = {"center": WEAK.for_test(), "whole": WEAK.for_test(uncropped=True)}
POOLED = {
    "mean": lambda maps: maps.mean(dim=(2, 3)),
    "root mean square": root_mean_square,
    "p = 3": lambda maps: maps.pow(3).mean(dim=(2, 3)).pow(1 / 3),
}


def some_rows(name, classes):
    rows = np.random.default_rng(0).permutation(chosen_rows(name, classes))
    return np.sort(rows[:N_IMAGES])


@torch.inference_mode()
def features(network, images, rows, seen):
    """(N, 1280) unit features for each way of pooling."""
    found = {pooling: [] for pooling in POOLED}
    for part in np.array_split(rows, -(-len(rows) // BATCH)):
        pixels = [
            render_views(images.image(row), [(seen, 0)], seed=0, image_key="") for row in part
        ]
        one = normalize(torch.from_numpy(np.concatenate(pixels)), mean=(MEAN,) * 3, std=(STD,) * 3)
        maps = network.maps(torch.cat([one, one.flip(3)]))
        for pooling, pool in POOLED.items():
            first, mirrored = unit(pool(maps)).chunk(2)
            found[pooling].append(unit(first + mirrored))
    return {pooling: torch.cat(parts).numpy() for pooling, parts in found.items()}


def named_by_means(x, classes):
    """Percent of images that are nearest to the mean of a few labels of their own class."""
    rng, rows, right = np.random.default_rng(0), centered(torch.from_numpy(x)), []
    for _ in range(DRAWS):
        order = rng.permutation(len(classes))
        labeled = np.concatenate([order[classes[order] == c][:LABELS] for c in np.unique(classes)])
        sums = torch.zeros(int(classes.max()) + 1, rows.shape[1])
        sums.index_add_(0, torch.from_numpy(classes[labeled]), rows[torch.from_numpy(labeled)])
        nearest = (rows @ unit(sums).T).argmax(dim=1).numpy()
        right.append(np.delete(nearest == classes, labeled).mean())
    return float(100 * np.mean(right))


def main():
    torch.set_num_threads(1)
    network, lines = EfficientNetLite(used_of(read_state(cached(LITE)))), []
    for name in DEVELOPED_ON:
        images, classes = images_of(name)
        rows = some_rows(name, classes)
        _, true = np.unique(classes[rows], return_inverse=True)
        for seen, settings in SEEN.items():
            for pooling, x in features(network, images, rows, settings).items():
                line = {"set": name, "seen": seen, "pooled": pooling}
                line |= {"three labels": named_by_means(x, true), "neighbors": same_class(x, true)}
                lines.append(line)
    print(table(lines))


if __name__ == "__main__":
    main()
