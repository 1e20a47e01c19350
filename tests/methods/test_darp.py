from dataclasses import replace

import numpy as np
import pytest
import torch

from bacon_gcd.methods.class_sizes import spread_counts
from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def test_refined_pseudo_labels_have_the_target_sizes():
    problem = planted(epochs=2)
    trainer = trainer_for("darp", problem)
    trainer.run()
    method, counts = trainer.method, trainer.method.sizes.counts
    free = torch.from_numpy(problem.data.labels < 0)
    assert torch.equal(method.unlabeled, free)
    assert counts.sum() == pytest.approx(int(free.sum()))
    refined = method.refined[free]
    torch.testing.assert_close(refined.sum(1), torch.ones(len(refined)))
    torch.testing.assert_close(refined.sum(0), counts, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(method.predictions[free].sum(0), counts, atol=0.5)
    assert (method.refined[~free] == 1 / 6).all()


def test_the_table_keeps_the_last_weak_prediction_of_an_image():
    problem = planted()
    trainer = trainer_for("darp", problem)
    trainer.method.refresh(0, trainer.probe)
    batch = batch_of("darp", problem, [5, 7, 5])
    trainer.method.terms(batch)
    weak = (trainer.method.live(batch.view(0)) / 0.1).softmax(1).detach()
    table = trainer.method.predictions
    torch.testing.assert_close(table[[5, 7]], weak[[2, 1]])
    untouched = np.setdiff1d(np.arange(len(table)), [5, 7])
    assert (table[untouched] == 1 / 6).all()


def test_refinement_waits_for_the_warm_up_and_comes_every_few_steps():
    problem = planted(epochs=10)
    trainer = trainer_for("darp", problem, epochs=10, warmup=80, interval=2)
    calls = []
    trainer.method.refine = lambda: calls.append(epoch)
    for epoch in range(6):
        trainer.method.refresh(epoch, trainer.probe)
        for step in range(3):
            trainer.method.terms(batch_of("darp", problem, epoch=epoch, step=step))
    assert calls == [4, 4, 5, 5]  # from 2/5 of the run on; steps 0 and 2 of three


@pytest.mark.parametrize("prior", ["clusters", "oracle", "confusion"])
def test_other_sources_of_the_sizes_find_the_planted_ones(prior):
    problem = planted(spread=0.05, epochs=40)
    oracle = torch.tensor(problem.counts).float() if prior == "oracle" else None
    trainer = trainer_for("darp", problem, epochs=40, prior=prior, oracle_counts=oracle, warmup=200)
    labeled = np.array([*problem.task.labeled_counts, 0, 0])
    unlabeled = problem.counts - labeled
    if prior == "confusion":
        trainer.run()
        assert trainer.method.sizes.n_estimates > 0
        assert trainer.method.sizes.held_out.sum() > 0
        known = trainer.method.sizes.known.numpy()
        # Novel images look like known ones, so the estimate is of all unlabeled images.
        assert known.sum() == pytest.approx(unlabeled.sum(), rel=1e-3)
    else:
        trainer.method.refresh(0, trainer.probe)
        found = trainer.method.sizes.counts.numpy()
        assert found[:4].tolist() == pytest.approx(unlabeled[:4].tolist())
        assert sorted(found[4:]) == pytest.approx(sorted(unlabeled[4:]))


def test_cluster_sizes_are_those_of_the_classes_they_matched():
    """Not handed out by rank: the class with most labels need not be the largest."""
    problem = planted(spread=0.05)
    labels = problem.data.labels
    largest = int(np.bincount(labels[labels >= 0]).argmax())
    labels[np.flatnonzero(labels == largest)[2:]] = -1
    left = tuple(np.bincount(labels[labels >= 0]).tolist())
    problem = replace(problem, task=replace(problem.task, labeled_counts=left))
    trainer = trainer_for("darp", problem, prior="clusters")
    trainer.method.refresh(0, trainer.probe)
    unlabeled = problem.counts - np.array([*problem.task.labeled_counts, 0, 0])
    np.testing.assert_allclose(trainer.method.sizes.counts[:4].numpy(), unlabeled[:4])


def test_confusions_are_learned_in_the_warm_up_only_and_used_afterwards():
    problem = planted(spread=0.05, epochs=10)
    trainer = trainer_for("darp", problem, epochs=10, prior="confusion", warmup=100)
    sizes, learned = trainer.method.sizes, []
    for epoch in (0, 4, 5, 9):  # half of the run is warm-up
        trainer.method.refresh(epoch, trainer.probe)
        learned.append(int(sizes.n_estimates))
    assert 0 < learned[0] < learned[1] == learned[2] == learned[3]
    n_unlabeled = int((problem.data.labels < 0).sum())
    expected = spread_counts(sizes.known, problem.task.n_classes, n_unlabeled)
    torch.testing.assert_close(sizes.counts, expected)


def test_held_out_labels_teach_nothing():
    problem = planted(epochs=2)
    trainer = trainer_for("darp", problem, prior="confusion")
    trainer.method.refresh(0, trainer.probe)
    kept = trainer.method.sizes.held_out.nonzero().squeeze(1).numpy()
    assert len(kept) > 0
    terms = trainer.method.terms(batch_of("darp", problem, kept))
    assert terms["classify/supervised"] == 0.0
