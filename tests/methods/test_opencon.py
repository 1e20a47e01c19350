import pytest
import torch
import torch.nn.functional as F

from bacon_gcd.data.batches import Batch
from tests.method_runs import batch_of, trainer_for
from tests.planted import planted


def toy_batch(labels):
    labels = torch.tensor(labels)
    return Batch(torch.zeros(2 * len(labels), 16), labels, torch.arange(len(labels)))


def test_pseudo_labels_and_novel_rows_by_hand():
    """Six classes, four known. The score of the best known class decides who looks novel."""
    method = trainer_for("opencon").method
    scores = torch.full((4, 6), -1.0)
    for row, best in enumerate([0, 1, 5, 2]):
        scores[row, best] = 9.0
    scores[1, 5] = 10.0  # labeled, whatever it looks like
    groups, novel = method.assign(scores, toy_batch([0, 1, -1, -1]))
    assert groups.tolist() == [0, 1, 5, 2]
    assert novel.tolist() == [False, False, True, False]


def test_without_labeled_rows_nothing_looks_novel():
    method = trainer_for("opencon").method
    _, novel = method.assign(torch.randn(5, 6), toy_batch([-1] * 5))
    assert not novel.any()


def test_prototypes_follow_labeled_and_novel_rows_as_they_were_before_the_step():
    problem = planted()
    trainer = trainer_for("opencon", problem, learning_rate=0.5)
    method, batch = trainer.method, batch_of("opencon", problem)
    z = method.projector(method.tail(batch.view(0))).detach()
    groups, _ = method.assign(method.prototypes.scores(z) / 0.1, batch)
    expected = {c: method.prototypes.vectors[c].clone() for c in range(6)}
    order = torch.randperm(
        int((batch.labeled | (groups >= 4)).sum()), generator=batch.generator()
    ).tolist()
    rows = (batch.labeled | (groups >= 4)).nonzero().squeeze(1)[order]
    for row in rows.tolist():
        c = int(groups[row])
        expected[c] = F.normalize(0.9 * expected[c] + 0.1 * z[row], dim=0)
    sum(method.terms(batch).values()).backward()
    trainer.optimizers["all"].step()
    assert not torch.allclose(method.projector(method.tail(batch.view(0))), z)
    method.after_step(batch)
    torch.testing.assert_close(method.prototypes.vectors, torch.stack(list(expected.values())))


def test_the_novel_contrast_ramps_up_over_half_the_run():
    method = trainer_for("opencon", planted(epochs=200)).method
    for epoch, weight in ((0, 0.0), (50, 0.05), (100, 0.1), (199, 0.1)):
        assert method.novel_weight(epoch) == pytest.approx(weight)


def test_each_contrast_sees_its_own_rows_only():
    problem = planted(epochs=200)
    method, batch = trainer_for("opencon", problem, epochs=200).method, batch_of("opencon", problem)
    free = (~batch.labeled).nonzero().squeeze(1)
    rows = torch.cat([free, free + len(batch.labels)])
    alone = Batch(batch.tokens[rows], batch.labels[free], batch.image_ids[free])
    for name in ("contrast/unlabeled", "classify/prior"):
        torch.testing.assert_close(method.terms(batch)[name], method.terms(alone)[name])


def test_the_prior_of_unlabeled_rows_by_hand():
    problem = planted()
    method, batch = trainer_for("opencon", problem).method, batch_of("opencon", problem)
    mean = method.classify(batch.view(0))[~batch.labeled].softmax(1).mean(0)
    prior = torch.tensor([0.5] * 4 + [1.0] * 2) / 4  # half of the known classes is labeled
    expected = 0.05 * (mean * (mean / prior).log()).sum()
    torch.testing.assert_close(method.terms(batch)["classify/prior"], expected)
