"""What the class prior of Eq. (2) does to BaCon-S's classifier: accuracy by class size.

python -m bench.prior EPOCHS      (CIFAR-100-LT under $BACON_DATA, pooled features of ResNet-18)

The classifier branch alone is trained: it shares no parameter with the contrastive branch. Class
counts are fixed before the first step.
"""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import torch
from torch import Tensor, nn

from bacon_gcd.benchmark.evaluation import classifier_block, test_probe
from bacon_gcd.benchmark.grid import Request
from bacon_gcd.benchmark.workbench import Workbench, prepare
from bacon_gcd.data.batches import Batch
from bacon_gcd.methods import settings_for
from bacon_gcd.methods.bacon import BaCon
from bacon_gcd.methods.base import Task
from bacon_gcd.training.loop import Trainer, TrainingData

NEVER = 1_000_000  # epochs between two estimates
VARIANTS = {
    "k-means on frozen features, p = 1.1": {},
    "oracle, p = 1.1": {"prior": "oracle"},
    "oracle, p = 1.1, Eq. (2) as printed": {"prior": "oracle", "prior_form": "paper"},
    "oracle, p = 0.5": {"prior": "oracle", "power": 0.5},
    "balanced": {"prior": "balanced"},
}


class ClassifierBranch(BaCon):
    """Eq. (3) alone."""

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        s = self.settings
        features = self.classify_tail(batch.tokens)
        cosines = self.classifier(features)
        unsupervised, supervised = self.classify_losses(cosines, features, batch)
        penalty = self.prior.penalty(cosines, temperature=s.temperature)
        return {
            "classify/supervised": s.classifier_scale * supervised,
            "classify/distill": s.classifier_scale * s.eta_1 * unsupervised,
            "classify/prior": s.classifier_scale * s.eta_2 * penalty,
        }


def main() -> None:
    request = Request(("table2",), "vectors", datasets=("cifar100-lt",), methods=("BaCon-S",))
    (cell,) = request.cells()
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else cell.settings.recipe.epochs
    bench = prepare(cell.settings, data=None)
    print("| prior | target | answers | all | old | new | known many / median / few |")
    print("|---|---|---|---|---|---|---|")
    for name, changes in VARIANTS.items():
        print(row(name, trained(bench, changes, epochs), bench), flush=True)


def trained(bench: Workbench, changes: dict[str, object], epochs: int) -> BaCon:
    """The branch at its last epoch."""
    fixed = {"projector_width": 0, "interval": NEVER} | changes
    own = settings_for("bacon-s", preset="released", changes=fixed)
    recipe = dataclasses.replace(bench.settings.recipe, epochs=epochs)
    task = Task.from_labels(
        bench.labels,
        n_classes=bench.split.n_classes,
        n_known=bench.split.n_known,
        n_epochs=epochs,
    )
    torch.manual_seed(0)
    method = ClassifierBranch(task, bench.backbone, own)
    method.projector = nn.Identity()  # neither used nor worth the time of being decayed
    if own.needs_oracle:
        method.oracle_counts = torch.from_numpy(bench.true_counts).float()
    Trainer(method, TrainingData(bench.train_source, bench.labels), recipe, seed=0).run()
    return method


def row(name: str, method: BaCon, bench: Workbench) -> str:
    """Share of the smallest third of the classes that the prior asks for, and that is answered."""
    scores = classifier_block(method, bench)
    small = np.argsort(bench.true_counts, kind="stable")[: bench.split.n_classes // 3]
    target = method.class_counts.numpy() ** method.settings.power
    answers = test_probe(bench).run(method.classify).argmax(dim=1).numpy()
    groups = " / ".join(f"{scores[f'known_{part}']:.1f}" for part in ("many", "median", "few"))
    parts = " | ".join(f"{scores[part]:.1f}" for part in ("all", "old", "new"))
    shares = f"{target[small].sum() / target.sum():.1%} | {np.isin(answers, small).mean():.1%}"
    return f"| {name} | {shares} | {parts} | {groups} |"


if __name__ == "__main__":
    main()
