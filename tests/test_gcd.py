import torch

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
