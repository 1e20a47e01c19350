"""BaCon-S's training step against the reference step, ViT-B/16 at 224 px, random weights."""

import argparse
import copy
import json
import sys
from dataclasses import replace

import torch

from bacon_gcd.backbone.tail import PlainTail, fold_tokens
from bacon_gcd.backbone.vit import ViT, ViTConfig, native_bfloat16
from bacon_gcd.data.batches import Batch
from bacon_gcd.methods.bacon import RELEASED, BaCon
from bacon_gcd.methods.base import Recipe, Task
from bacon_gcd.training.optimizers import optimizer_for
from bench.measure import pass_rate, seconds, table
from tests.reference import timed_step
from tests.reference.vit import random_state

N_CLASSES, N_KNOWN, SIZE = 100, 80, 224
TRUNK_VIEWS = 16  # the trunk is linear in the number of views: measured on few, scaled


def vit_b16(**options):
    config = ViTConfig("bench", patch=16, dim=768, depth=12, heads=12, pretrained_grid=14)
    state = random_state(patch=16, dim=768, depth=12, grid=14, dtype=torch.float32)
    return ViT.from_state(config, state, image_size=SIZE, **options)


def method_on(backbone, width):
    task = Task(N_CLASSES, N_KNOWN, (47,) * N_KNOWN, 9754, 200)
    torch.manual_seed(0)
    method = BaCon(task, backbone, replace(RELEASED, projector_width=width, counts="expected"))
    method.class_counts.copy_(torch.linspace(450, 4, N_CLASSES))
    return method


def labels_of(batch_size):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(N_KNOWN, (batch_size,), generator=generator)
    labels[batch_size // 2 :] = -1
    return labels


def our_step(method, optimizers, tokens, labels):
    batch = Batch(tokens, labels, torch.arange(len(labels)), epoch=100)
    terms = method.terms(batch)
    for optimizer in optimizers.values():
        optimizer.zero_grad(set_to_none=True)
    torch.stack(list(terms.values())).sum().backward()
    for optimizer in optimizers.values():
        optimizer.step()


def reference_step(method, raw, labels):
    tails = {
        name: PlainTail(copy.deepcopy(tail.block), copy.deepcopy(tail.norm))
        for name, tail in (
            ("classify_tail", method.classify_tail),
            ("contrast_tail", method.contrast_tail),
        )
    }
    branches = {
        **tails,
        "classifier_weight": method.classifier.weight,
        "mlp": method.projector.mlp,
        "wide": method.projector.wide,
    }
    groups = {
        "classify": [*tails["classify_tail"].parameters(), method.classifier.weight],
        "contrast": [*tails["contrast_tail"].parameters(), *method.projector.parameters()],
    }
    optimizers = {
        name: torch.optim.SGD([p for p in ps if p.requires_grad], lr=0.1, momentum=0.9)
        for name, ps in groups.items()
    }
    return lambda: timed_step.step(
        branches,
        optimizers,
        raw,
        labels,
        method.class_counts,
        teacher=0.04,
        power=1.1,
        warm_up=False,
    )


def main(batch_sizes=(64, 256)):
    backbone = vit_b16()
    images = torch.randn(TRUNK_VIEWS, 3, SIZE, SIZE)
    trunk = seconds(lambda: backbone.trunk(images), repeats=2) / TRUNK_VIEWS
    fast_trunk = trunk
    if native_bfloat16():
        bf16 = vit_b16(trunk_dtype=torch.bfloat16)
        fast_trunk = seconds(lambda: bf16.trunk(images), repeats=2) / TRUNK_VIEWS
    rows = []
    for size in batch_sizes:
        labels = labels_of(size)
        raw = torch.randn(2 * size, 197, 768)
        stored = fold_tokens(raw).half()
        wide = method_on(backbone, 65536)
        blocks = seconds(reference_step(wide, raw, labels), repeats=1, warm=size < 256)
        reference = blocks + 2 * size * trunk
        del raw
        for width in (65536, 0):
            method = method_on(backbone, width)
            optimizers = {g.name: optimizer_for(g, Recipe()) for g in method.groups()}
            ours = seconds(
                lambda m=method, o=optimizers, t=stored, y=labels: our_step(m, o, t, y), repeats=3
            )
            rows.append(
                {
                    "batch": size,
                    "projector": width,
                    "reference s": reference,
                    "of it trunk s": 2 * size * trunk,
                    "stored s": ours,
                    "stored x": reference / ours,
                    "fresh x": reference / (ours + 2 * size * fast_trunk),
                    "bytes limit s": stored.numel() * 2 / pass_rate(),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    if not native_bfloat16():
        print("no bf16 instructions on this machine: the fresh trunk is fp32 as well")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=[64, 256])
    main(parser.parse_args(sys.argv[1:]).batch)
