"""Products of the layers that people wait for: torch's own beside `bacon_gcd.products`.

python -m bench products   one thread; "whole" is a product and both of its gradients
"""

import time
from functools import partial

import torch
import torch.nn.functional as F

from bacon_gcd import products
from bacon_gcd.backbone.weights import load_backbone, untrained
from bacon_gcd.products import linear
from bacon_gcd.system.memory import keep_freed_memory
from bench.measure import seconds as best_seconds
from bench.measure import table

SHAPES = {
    "ViT-S/14 at 224 px, qkv": (257, 384, 1152),
    "ViT-S/14 at 224 px, MLP": (257, 384, 1536),
    "projector, 256 images in 2 views": (512, 2048, 2048),
    "tail of vectors": (512, 512, 512),
}
VIT = "vit_small_patch14_dinov2.pypi_lvd142m"
seconds = partial(best_seconds, repeats=20, clock=time.process_time)  # also beside other programs


def rates(rows, inputs, outputs):
    """GFLOP/s of the product and of it with both gradients, by torch and by ours."""
    given = [torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)]
    leaves = [each.clone().requires_grad_() for each in given]
    aim, work = torch.randn(rows, outputs), 2e-9 * rows * inputs * outputs
    found = {}
    for name, product in (("torch", F.linear), ("ours", linear)):
        alone = seconds(lambda product=product: product(*given))
        whole = seconds(lambda product=product: torch.autograd.grad(product(*leaves), leaves, aim))
        found |= {name: work / alone, f"{name}, whole": 3 * work / whole}
    return found


def image_seconds():
    """Seconds for one image of the default backbone, by torch and by ours."""
    vit = load_backbone(VIT, image_size=224, tuned=untrained(VIT))
    image, here = torch.randn(1, 3, 224, 224), products.half_used
    ours = seconds(lambda: vit.trunk(image))
    products.half_used = lambda: False
    theirs = seconds(lambda: vit.trunk(image))
    products.half_used = here
    return {"torch": theirs, "ours": ours, "times faster": theirs / ours}


def main():
    torch.set_num_threads(1)
    keep_freed_memory()
    print(f"oneDNN is used here: {products.half_used()}\n")
    print(table([{"GFLOP/s": name} | rates(*shape) for name, shape in SHAPES.items()]))
    print(table([{"seconds": "an image, ViT-S/14 at 224 px"} | image_seconds()]))
