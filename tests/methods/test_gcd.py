from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bacon_gcd.benchmark.evaluation import clustered_block, evaluate, joint_block, quick_scores
from bacon_gcd.config import UserError
from bacon_gcd.data.batches import Batch
from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def test_the_unsupervised_contrast_may_leave_labeled_images_out():
    problem = planted()
    batch = batch_of("gcd", problem)
    method = trainer_for("gcd", problem, unlabeled_only=True).method
    free = (~batch.labeled).nonzero().squeeze(1)
    rows = torch.cat([free, free + len(batch.labels)])
    alone = Batch(batch.tokens[rows], batch.labels[free], batch.image_ids[free])
    both, one = method.terms(batch), method.terms(alone)
    torch.testing.assert_close(both["contrast/unsupervised"], one["contrast/unsupervised"])
    assert one["contrast/supervised"] == 0.0
    usual = trainer_for("gcd", problem).method.terms(batch)
    torch.testing.assert_close(usual["contrast/supervised"], both["contrast/supervised"])
    assert not torch.isclose(usual["contrast/unsupervised"], both["contrast/unsupervised"])


def test_the_published_weights_are_the_defaults():
    problem = planted()
    batch = batch_of("gcd", problem)
    usual = trainer_for("gcd", problem).method.terms(batch)
    half = trainer_for("gcd", problem, supervised_share=0.7).method.terms(batch)
    torch.testing.assert_close(half["contrast/supervised"], 2 * usual["contrast/supervised"])
    torch.testing.assert_close(
        usual["contrast/unsupervised"] / 0.65, half["contrast/unsupervised"] / 0.3
    )


def bench_of(problem):
    """As much of a workbench as the scores look at."""
    return SimpleNamespace(
        split=SimpleNamespace(n_classes=problem.task.n_classes, n_known=problem.task.n_known),
        settings=SimpleNamespace(seed=0),
        device=None,
        labels=problem.data.labels,
        train_source=problem.data.source,
        test_source=problem.test,
        true_train=problem.true,
        true_test=problem.true_test,
        true_counts=problem.counts,
        group_counts=problem.counts,
    )


def test_training_and_test_images_are_clustered_together_where_asked():
    """Labels hold the known classes, so that their names are right without the truth's help."""
    problem = planted(spread=0.2)
    trainer = trainer_for("gcd", problem, clustering="joint")
    trainer.method.place_centroids(trainer.probe)
    blocks = evaluate(trainer.method, bench_of(problem))
    assert trainer.method.headline == "joint_kmeans"
    assert (blocks["joint_kmeans"]["all"], blocks["joint_kmeans"]["anchored"]["old"]) == (100, 100)
    assert quick_scores(trainer.method, bench_of(problem)) == {"all": 100, "old": 100, "new": 100}
    usual = trainer_for("gcd", problem).method
    usual.centroids = trainer.method.centroids
    assert usual.headline == "test_kmeans"
    assert evaluate(usual, bench_of(problem)) == {
        name: scores for name, scores in blocks.items() if name != "joint_kmeans"
    }


def test_joint_clusters_follow_the_labels_where_test_images_alone_cannot_tell():
    """Two known classes that touch and a novel one in two pieces: three clusters of the test
    images are the pieces, with labeled training images they are the classes."""
    rng = np.random.default_rng(0)
    places = {0: [(0.0, 1.0)], 1: [(0.45, 1.0)], 2: [(-1.0, -0.6), (-1.0, -1.4)]}

    def points(n):
        true = np.repeat([0, 1, 2], n)
        spots = [places[c][i % len(places[c])] for i, c in enumerate(true)]
        return true, np.array(spots) + 0.01 * rng.normal(size=(len(true), 2))

    (true, train), (true_test, test) = points(40), points(10)
    labels = np.where((true < 2) & (np.arange(120) % 2 == 0), true, -1)
    bench = SimpleNamespace(
        split=SimpleNamespace(n_classes=3, n_known=2),
        labels=labels,
        true_test=true_test,
        true_counts=np.array([40, 40, 40]),
        group_counts=np.array([40, 40, 40]),
    )
    test, train = torch.tensor(test).float(), torch.tensor(train).float()
    assert joint_block(test, train, bench, restarts=3)["all"] == 100
    assert clustered_block(test, train, bench, restarts=3)["all"] < 80


def test_other_ways_of_clustering_are_refused():
    with pytest.raises(UserError, match="clustering 'both' is not known; choose from test, joint"):
        trainer_for("gcd", clustering="both")
