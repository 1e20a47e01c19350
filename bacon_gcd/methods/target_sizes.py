"""The class sizes DARP aligns to, from one of four sources: sizes of novel classes are unknown."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bacon_gcd.methods.base import Method, Probe, Task
from bacon_gcd.methods.class_sizes import (
    clustered_counts,
    counts_from_confusion,
    held_out,
    spread_counts,
    without_labeled,
)

SOURCES = ("labeled", "clusters", "confusion", "oracle")


class TargetSizes(nn.Module):
    """How many unlabeled images each class should have: M of DARP.

    Args:
        task: classes, and how many images of each are labeled.
        source: one of SOURCES.
        most_held_out: labeled images per class kept apart, for the confusions.
    """

    def __init__(self, task: Task, source: str, *, most_held_out: int) -> None:
        super().__init__()
        self.task, self.source, self.most_held_out = task, source, most_held_out
        self.counts = nn.Buffer(torch.ones(task.n_classes))
        # (n_images,) bool: labels that training does not see.
        self.held_out = nn.Buffer(torch.zeros(task.n_images).bool())
        # The mean of the accepted estimates of the known classes, and their number.
        self.known = nn.Buffer(torch.zeros(task.n_known))
        self.n_estimates = nn.Buffer(torch.tensor(0))

    def refresh(self, method: Method, probe: Probe, *, learning: bool) -> None:
        """Estimate anew; confusions are `learning` only while pseudo-labels are plain."""
        if self.source == "confusion":
            labels = torch.from_numpy(probe.labels).to(self.counts.device)
            self.held_out.copy_(held_out(labels, most=self.most_held_out))
            if learning:
                self.learn_confusions(method, labels, probe)
        self.counts.copy_(self.estimate(method, probe))

    def estimate(self, method: Method, probe: Probe) -> Tensor:
        """(C,) unlabeled images per class, from the source."""
        task, n_unlabeled = self.task, int((probe.labels < 0).sum())
        labeled = torch.tensor(task.labeled_counts, dtype=torch.float32, device="cpu")
        if method.oracle_counts is not None:
            return without_labeled(method.oracle_counts.cpu(), labeled, n_unlabeled)
        if self.source == "clusters":
            found = clustered_counts(
                probe.run(method.features),
                probe.labels,
                n_classes=task.n_classes,
                n_known=task.n_known,
                rank_match=False,
            )
            return without_labeled(found, labeled, n_unlabeled)
        known = self.known.cpu() if self.n_estimates > 0 else labeled
        return spread_counts(known, task.n_classes, n_unlabeled)

    def learn_confusions(self, method: Method, labels: Tensor, probe: Probe) -> None:
        """Add this epoch's estimate of the known classes, if it can be trusted, to the mean."""
        logits = probe.run(method.predictor().logits)
        known = logits[:, : self.task.n_known].softmax(dim=1)
        found = counts_from_confusion(
            known[self.held_out], labels[self.held_out], known[labels < 0]
        )
        if found is not None:
            self.n_estimates.add_(1)
            self.known.add_((found.float() - self.known) / self.n_estimates)
