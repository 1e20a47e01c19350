"""Whether training pays is judged by known classes that are treated as new."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bacon_gcd.cluster import unit
from bacon_gcd.discovery import learn as module
from bacon_gcd.discovery.learn import Samples, learn, short_plan
from bacon_gcd.discovery.settings import DiscoverSettings
from bacon_gcd.discovery.summary import chosen
from bacon_gcd.discovery.trial import MARGIN, Trial, try_training
from tests.planted import planted

PROBLEM = planted(n_classes=9, n_known=6, n_max=40, ratio=1.0)
CLEAR = unit(PROBLEM.data.source.test(np.arange(len(PROBLEM.true))))
BLURRED = unit(torch.randn(CLEAR.shape, generator=torch.Generator().manual_seed(0)))


def tried(frozen, trained, labels=PROBLEM.data.labels):
    seen = []

    def train(visible, n_known):
        seen.append((visible, n_known))
        return trained

    return try_training(frozen, labels, train, n_classes=9, seed=0), seen


def test_training_sees_no_label_of_the_classes_that_judge_it():
    trial, ((visible, n_known),) = tried(CLEAR, CLEAR)
    labels = PROBLEM.data.labels
    assert trial.n_classes == 2
    assert n_known == 4
    assert set(visible.tolist()) == {-1, 0, 1, 2, 3}
    assert (visible[labels < 0] == -1).all()
    hidden = [c for c in range(6) if (visible[labels == c] == -1).all()]
    assert len(hidden) == 2
    assert trial.n_images == ((labels >= 0) & (visible < 0)).sum()


@pytest.mark.parametrize(
    ("frozen", "trained", "pays"),
    [(CLEAR, BLURRED, False), (BLURRED, CLEAR, True), (CLEAR, CLEAR, False)],
)
def test_features_that_sort_hidden_images_better_win(frozen, trained, pays):
    trial, _ = tried(frozen, trained)
    assert trial.pays is pays
    good, bad = (trial.trained, trial.frozen) if pays else (trial.frozen, trial.trained)
    assert good > 0.95
    assert (bad < 0.6) is (frozen is not trained)


def test_a_difference_within_the_margin_does_not_pay():
    assert not Trial(100, 3, 0.5, 0.5 + MARGIN / 2).pays
    assert Trial(100, 3, 0.5, 0.5 + 2 * MARGIN).pays


@pytest.mark.parametrize("kept", [0, 1])
def test_too_few_known_classes_or_labels_say_nothing_and_nothing_is_trained(kept):
    labels = np.where(PROBLEM.data.labels < kept, PROBLEM.data.labels, -1)
    assert tried(CLEAR, CLEAR, labels) == (None, [])
    one_each = np.full(len(labels), -1)
    for c in range(6):
        one_each[np.flatnonzero(PROBLEM.true == c)[0]] = c
    assert tried(CLEAR, CLEAR, one_each) == (None, [])


@pytest.mark.parametrize("pays", [True, False])
def test_trained_features_are_used_only_where_they_pay(pays, monkeypatch):
    trial = Trial(50, 2, 0.5, 0.9 if pays else 0.4)
    monkeypatch.setattr(module, "try_training", lambda *args, **facts: trial)
    samples = Samples(PROBLEM.data.source, PROBLEM.data.labels, 6, PROBLEM.backbone)
    notes = []
    learned = learn(
        samples,
        replace(short_plan(1), on_trial=True),
        allowed=(9, 9),
        seed=0,
        note=lambda **facts: notes.append(facts["kind"]),
    )
    assert learned.trial is trial
    assert learned.name == ("bacon-s" if pays else "anchored-kmeans")
    assert torch.equal(learned.features, learned.frozen) is not pays
    assert notes == ["classes", "trial", "epoch"] if pays else ["classes", "trial"]


def test_a_training_that_a_person_asked_for_is_not_on_trial(monkeypatch):
    monkeypatch.setattr(module, "try_training", lambda *args, **facts: pytest.fail("tried"))
    samples = Samples(PROBLEM.data.source, PROBLEM.data.labels, 6, PROBLEM.backbone)
    assert learn(samples, short_plan(1), allowed=(9, 9), seed=0).name == "bacon-s"


@pytest.mark.parametrize(
    ("epochs", "trial", "said"),
    [
        (0, None, ["the backbone's features, averaged over 5 views"]),
        (9, Trial(50, 2, 0.5, 0.9), ["features trained for 9 epochs", "90% of 50 images", "50%"]),
        (9, Trial(50, 2, 0.5, 0.4), ["the backbone's features", "did not pay and was not used"]),
        (9, None, ["the backbone's features", "too few labels"]),
    ],
)
def test_the_report_says_which_was_chosen_and_by_which_evidence(epochs, trial, said):
    settings = DiscoverSettings("photos", views=4, epochs=epochs)
    for n_known in (0, 3):
        text = " ".join(chosen(settings, n_known, trial))
        assert all(part in text for part in said), text
