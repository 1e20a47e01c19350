import numpy as np
import pytest
import torch

from bacon_gcd.config import UserError
from bacon_gcd.data.batches import SAMPLERS, Batch, sample_epoch


def labels_with(n_labeled, n_unlabeled):
    return np.array([0] * n_labeled + [-1] * n_unlabeled)


def epoch_of(labels, kind, size=8, seed=0, epoch=0):
    return list(sample_epoch(labels, batch_size=size, kind=kind, seed=seed, epoch=epoch))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_an_epoch_has_whole_batches_and_drops_the_rest(kind):
    batches = epoch_of(labels_with(13, 30), kind)
    assert len(batches) == 43 // 8
    assert all(len(b) == 8 for b in batches)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_same_seed_and_epoch_give_the_same_batches_and_others_do_not(kind):
    labels = labels_with(20, 60)
    same = [epoch_of(labels, kind, seed=3, epoch=2) for _ in range(2)]
    assert np.array_equal(same[0], same[1])
    assert not np.array_equal(same[0], epoch_of(labels, kind, seed=3, epoch=3))
    assert not np.array_equal(same[0], epoch_of(labels, kind, seed=4, epoch=2))


def test_half_draws_labeled_images_half_of_the_time_however_few_they_are():
    labels = labels_with(50, 4950)
    drawn = np.concatenate(epoch_of(labels, "half", size=100))
    share = (labels[drawn] >= 0).mean()
    assert 0.47 < share < 0.53  # 5000 draws: 4 standard deviations


def test_equal_has_exactly_half_labeled_in_every_batch():
    labels = labels_with(5, 95)
    assert all((labels[b] >= 0).sum() == 4 for b in epoch_of(labels, "equal"))


def test_proportional_keeps_the_true_share_and_repeats_no_unlabeled_image():
    labels = labels_with(25, 75)
    batches = epoch_of(labels, "proportional")
    assert all((labels[b] >= 0).sum() == 2 for b in batches)
    unlabeled = [i for b in batches for i in b if labels[i] < 0]
    assert len(unlabeled) == len(set(unlabeled))


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("n_labeled", [0, 10])
def test_all_or_none_labeled_still_gives_batches(kind, n_labeled):
    batches = epoch_of(labels_with(n_labeled, 10 - n_labeled), kind, size=4)
    assert [len(b) for b in batches] == [4, 4]


def test_a_batch_larger_than_the_data_becomes_all_of_it():
    assert [len(b) for b in epoch_of(labels_with(2, 3), "half", size=100)] == [5]


def test_no_images_and_unknown_samplers_are_one_line_errors():
    with pytest.raises(UserError, match="no training images"):
        epoch_of(np.empty(0, dtype=np.int64), "half")
    with pytest.raises(UserError, match="half, proportional, equal"):
        epoch_of(labels_with(1, 1), "thirds")


def test_a_batch_knows_its_views_labels_and_present_classes():
    tokens = torch.arange(8.0).reshape(8, 1)
    batch = Batch(tokens, labels=torch.tensor([2, -1, 0, -1]), image_ids=torch.arange(4), seed=7)
    assert batch.n_views == 2
    assert batch.view(1).flatten().tolist() == [4, 5, 6, 7]
    assert batch.labeled.tolist() == [True, False, True, False]
    assert batch.present_classes(4).tolist() == [True, False, True, False]
    draws = [torch.rand(3, generator=batch.generator()) for _ in range(2)]
    assert torch.equal(draws[0], draws[1])
