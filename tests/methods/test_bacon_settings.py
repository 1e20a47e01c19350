"""Every setting of BaCon is varied here, and each variation says what must follow from it."""

from dataclasses import asdict, fields, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.classes.placed import place_classes
from bacon_gcd.classes.rules import RULES
from bacon_gcd.cluster import match
from bacon_gcd.config import UserError
from bacon_gcd.methods import METHODS, class_sizes, settings_for
from bacon_gcd.methods.bacon import BaConSettings
from bacon_gcd.methods.base import Task
from bacon_gcd.model import by_centroids, describe_backbone, load_model, save_model
from bacon_gcd.pseudo_labels import positiveness
from bacon_gcd.training.embed import TrainProbe
from tests.method_runs import trainer_for
from tests.methods.test_bacon import SMALL, bacon, one_batch
from tests.planted import planted
from tests.reference import losses as by_hand

BASE = replace(SMALL, counts="expected", alpha=0.5)
CLASSIFY = {"classify/supervised", "classify/distill", "classify/prior"}
CONTRAST = {"contrast/unsupervised", "contrast/supervised", "contrast/advice"}
VARIED = set()


def varies(*names):
    """Mark what a test varies; the last test finds what is left out."""
    VARIED.update(names)
    return lambda test: test


class Step:
    """One step late in a run of 200 epochs, whose class counts are the true ones."""

    def __init__(self, epoch=100, **changes):
        self.problem = planted(epochs=200, ratio=8.0)
        self.method = bacon(self.problem, replace(BASE, **changes))
        self.method.class_counts.copy_(torch.tensor(self.problem.counts))
        self.batch = one_batch(self.problem, size=40, epoch=epoch)
        self.both_labels = self.batch.labels.repeat(2)

    @property
    def terms(self):
        return {name: term.item() for name, term in self.method.terms(self.batch).items()}

    @property
    def cosines(self):
        with torch.no_grad():
            return self.method.classifier(self.method.classify_tail(self.batch.tokens))

    @property
    def similarity(self):
        with torch.no_grad():
            return self.method.projector.cosines(self.method.contrast_tail(self.batch.tokens))

    @property
    def advice(self):
        return self.method.advise(self.cosines, self.batch)

    @property
    def pseudo_labels(self):
        """(B, C) probabilities that decide who is kept."""
        seen = []
        self.method.sample = lambda p, batch: seen.append(p) or ~batch.labeled
        self.method.advise(self.cosines, self.batch)
        return seen[0]


def factors(**changes):
    """By what each term is multiplied."""
    usual, other = Step().terms, Step(**changes).terms
    assert usual.keys() == other.keys()
    return {name: other[name] / usual[name] for name in usual}


def same(ids):
    return (ids[:, None] == ids).double()


WEIGHTS = {
    "classifier_scale": CLASSIFY,
    "eta_1": {"classify/distill"},
    "eta_2": {"classify/prior"},
    "contrastive_scale": CONTRAST,
    "gamma_1": {"contrast/supervised"},
    "gamma_2": {"contrast/advice"},
}


@varies(*WEIGHTS)
@pytest.mark.parametrize("setting", WEIGHTS)
def test_a_weight_scales_its_own_terms_and_no_other(setting):
    found = factors(**{setting: 3 * getattr(BASE, setting)})
    assert found == pytest.approx({name: 3 if name in WEIGHTS[setting] else 1 for name in found})


@varies("style")
def test_the_style_chooses_distillation_or_partners():
    assert Step(style="S").terms.keys() == CLASSIFY | CONTRAST
    partners = CLASSIFY - {"classify/distill"} | {"classify/pairs"}
    assert Step(style="O").terms.keys() == partners | CONTRAST


@varies("temperature")
def test_the_temperature_divides_the_classifiers_cosines():
    step = Step(temperature=0.2)
    expected = by_hand.cross_entropy(step.cosines / 0.2, step.both_labels)
    assert step.terms["classify/supervised"] == pytest.approx(0.35 * float(expected), rel=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(step.method.classify(step.batch.tokens), step.cosines / 0.2)


@varies("teacher_start", "teacher_end", "teacher_ramp")
def test_the_teacher_goes_from_start_to_end_over_the_ramp():
    teacher = Step(teacher_start=0.09, teacher_end=0.03, teacher_ramp=61).method.teacher_temperature
    found = [teacher(epoch) for epoch in (0, 30, 60, 199)]
    assert found == pytest.approx([0.09, 0.06, 0.03, 0.03])
    step = Step(epoch=0, teacher_start=0.09)
    expected = by_hand.self_distillation(step.cosines, 0.09, 0.1)
    assert step.terms["classify/distill"] == pytest.approx(0.65 * float(expected), rel=1e-5)


@varies("power")
def test_a_power_of_zero_makes_all_classes_equal():
    step = Step(power=0.0)
    skewed = step.terms["classify/prior"]
    step.method.class_counts.fill_(7.0)
    assert skewed == pytest.approx(step.terms["classify/prior"], rel=1e-5)
    assert Step(power=1.1).terms["classify/prior"] != pytest.approx(skewed, rel=0.1)


@varies("prior_form")
@pytest.mark.parametrize("form", ["released", "paper"])
def test_the_penalty_has_the_form_that_is_named(form):
    step = Step(prior_form=form, power=0.5)
    mean = by_hand.mean_prediction(step.cosines)
    expected = by_hand.prior_penalty(mean, step.method.class_counts, 0.5, form)
    assert step.terms["classify/prior"] == pytest.approx(0.65 * float(expected), rel=1e-4)


@varies("warmup")
@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_the_soft_contrast_starts_after_the_warm_up(warmup):
    present = ["contrast/advice" in Step(epoch=e, warmup=warmup).terms for e in range(7)]
    assert present == [epoch >= warmup for epoch in range(7)]


@varies("warmup_full")
def test_in_warm_up_labels_have_the_weight_of_the_soft_contrast_too():
    full, bare = (Step(epoch=0, warmup_full=x).terms["contrast/supervised"] for x in (True, False))
    assert full / bare == pytest.approx((BASE.gamma_1 + BASE.gamma_2) / BASE.gamma_1)


@varies("unsupervised_temperature", "supervised_temperature", "soft_temperature")
def test_each_contrast_has_its_own_temperature():
    images = torch.arange(40).repeat(2)
    step = Step(unsupervised_temperature=0.5)
    expected = 0.65 * by_hand.contrast(step.similarity.double(), same(images), 0.5)
    assert step.terms["contrast/unsupervised"] == pytest.approx(float(expected), rel=1e-4)

    step = Step(supervised_temperature=0.3)
    rows = (step.both_labels >= 0).nonzero()[:, 0]
    labeled = step.similarity.double()[rows][:, rows]
    expected = 0.175 * by_hand.contrast(labeled, same(step.both_labels[rows]), 0.3)
    assert step.terms["contrast/supervised"] == pytest.approx(float(expected), rel=1e-4)

    step = Step(soft_temperature=0.3)
    rows = step.advice.kept.repeat(2).nonzero()[:, 0]
    weights = step.advice.positiveness.double().repeat(2, 2)
    expected = 0.175 * by_hand.contrast(step.similarity.double()[rows][:, rows], weights, 0.3)
    assert step.terms["contrast/advice"] == pytest.approx(float(expected), rel=1e-4)


@varies("debias")
def test_debiasing_moves_pseudo_labels_to_rare_classes():
    plain = Step(debias=0.0)
    first, second = (plain.cosines / 0.1).softmax(dim=1).chunk(2)
    torch.testing.assert_close(plain.pseudo_labels, (first + second) / 2)
    rare = int(np.argmin(plain.problem.counts))
    shares = [float(Step(debias=k).pseudo_labels[:, rare].mean()) for k in (0.0, 0.5, 2.0)]
    assert shares[0] < shares[1] < shares[2]


@varies("sampling")
def test_without_sampling_every_image_keeps_its_pseudo_label():
    assert Step(sampling=False).advice.kept.all()
    assert not Step(sampling=True).advice.kept.all()


@varies("alpha", "beta")
@pytest.mark.parametrize("setting", ["alpha", "beta"])
def test_alpha_drops_classes_with_a_label_in_the_batch_and_beta_the_others(setting):
    step = Step(**{"alpha": 0.0, "beta": 0.0, setting: 5.0})
    true = torch.tensor(step.problem.true)[step.batch.image_ids]
    kept = step.method.sample(torch.eye(6)[true], step.batch)
    dropped = ~step.batch.labeled & ~kept
    assert dropped.any()
    labeled_here = step.batch.present_classes(6)[true[dropped]]
    assert labeled_here.all() if setting == "alpha" else not labeled_here.any()


@varies("counts")
def test_expected_counts_do_not_depend_on_the_draw_and_random_ones_do():
    kept = {}
    for kind in ("expected", "random"):
        step = Step(counts=kind)
        draws = [replace(step.batch, seed=seed) for seed in range(8)]
        kept[kind] = {tuple(step.method.advise(step.cosines, b).kept.tolist()) for b in draws}
    assert len(kept["expected"]) == 1
    assert len(kept["random"]) > 1


@varies("advice")
def test_advice_is_soft_hard_or_absent():
    assert "contrast/advice" not in Step(advice="none").terms
    hard, soft = (Step(advice=kind).advice.positiveness for kind in ("hard", "soft"))
    assert set(hard.unique().tolist()) == {0.0, 1.0}
    assert len(soft.unique()) > 2


@varies("similarity")
@pytest.mark.parametrize("similarity", ["dot", "cosine", "l1", "l2"])
def test_positiveness_is_the_similarity_that_is_named(similarity):
    step = Step(similarity=similarity, sampling=False)
    expected = positiveness(step.pseudo_labels, similarity=similarity)
    torch.testing.assert_close(step.advice.positiveness, expected)


@varies("labeled_targets")
def test_labeled_images_enter_by_their_labels_if_asked():
    step = Step(labeled_targets="onehot", sampling=False)
    rows = step.batch.labeled.nonzero()[:, 0]
    found = step.advice.positiveness[rows][:, rows]
    torch.testing.assert_close(found, same(step.batch.labels[rows]).float())
    predicted = Step(labeled_targets="predicted", sampling=False).advice.positiveness
    assert not torch.allclose(predicted[rows][:, rows], found)


@varies("same_image_one")
def test_two_views_of_an_image_weigh_one_or_what_their_pseudo_label_says():
    ones = Step(same_image_one=True).advice.positiveness.diagonal()
    assert torch.equal(ones, torch.ones_like(ones))
    step = Step(same_image_one=False, sampling=False)
    p = step.pseudo_labels
    torch.testing.assert_close(step.advice.positiveness.diagonal(), (p * p).sum(dim=1))


@varies("projector_width")
def test_the_projector_has_the_width_that_is_asked_or_no_wide_layer():
    assert Step(projector_width=96).method.projector.wide.shape == (96, 256)
    assert Step(projector_width=0).method.projector.wide is None


# The class counts: from which source, how often, and how clusters become classes.


@varies("prior")
def test_a_balanced_prior_takes_no_look_at_the_images():
    step = Step(prior="balanced")
    step.method.refresh(0, None)
    expected = torch.full((6,), len(step.problem.true) / 6)
    torch.testing.assert_close(step.method.class_counts, expected)


@varies("interval")
@pytest.mark.parametrize(("interval", "expected"), [(10, [0, 10, 20]), (25, [0, 25]), (1, None)])
def test_counts_are_estimated_every_interval(interval, expected):
    method, asked = Step(interval=interval).method, []
    method.estimate = lambda probe: asked.append(epoch) or torch.ones(6)
    for epoch in range(30):
        method.refresh(epoch, None)
    assert asked == (expected or list(range(30)))


@varies("restarts")
def test_the_clusters_of_an_estimate_get_their_restarts(monkeypatch):
    step, seen = Step(restarts=7), []
    usual = class_sizes.kmeans
    spy = lambda *a, n_init, **k: seen.append(n_init) or usual(*a, n_init=n_init, **k)  # noqa: E731
    monkeypatch.setattr(class_sizes, "kmeans", spy)
    step.method.refresh(0, probe_of(step.problem.data))
    assert seen == [7]


def probe_of(data, labels=None):
    return TrainProbe(data.source, data.labels if labels is None else labels, 0)


@varies("rank_match")
@pytest.mark.parametrize("rank_match", [True, False])
def test_known_classes_get_sizes_by_the_rank_of_their_labels_or_those_of_their_clusters(rank_match):
    """The largest known class has the fewest labels: by rank it gets the smallest size."""
    problem = planted(spread=0.05, epochs=200)
    known, labels = problem.counts[:4], problem.data.labels.copy()
    largest = int(known.argmax())
    labels[np.flatnonzero(labels == largest)[1:]] = -1
    method = bacon(problem, replace(BASE, rank_match=rank_match, restarts=5))
    method.refresh(0, probe_of(problem.data, labels))
    found = method.class_counts[:4].numpy()
    if rank_match:
        labeled = np.bincount(labels[labels >= 0])
        assert found[np.argsort(labeled)].tolist() == sorted(known)
    else:
        assert found.tolist() == known.tolist()


@varies("match_cost")
@pytest.mark.parametrize(("cost", "size"), [("share", 6), ("count", 60)])
def test_a_class_takes_the_cluster_that_it_fills_or_that_holds_most_of_its_labels(cost, size):
    """Six of its labels are in a cluster of their own, ten in a cluster of sixty."""
    tokens = np.repeat([[0.0, 3.0], [3.0, 0.0]], [60, 6], axis=0)
    tokens = np.pad(
        tokens + 0.01 * np.random.default_rng(0).normal(size=(66, 2)), ((0, 0), (0, 14))
    )
    labels = np.where((np.arange(66) < 10) | (np.arange(66) >= 60), 0, -1)
    problem = replace(planted(), task=Task.from_labels(labels, n_classes=2, n_known=1, n_epochs=9))
    method = bacon(problem, replace(BASE, match_cost=cost, rank_match=False, restarts=5))
    method.refresh(0, TrainProbe(ReadyTokens(tokens), labels, 0))
    assert method.class_counts.tolist() == [size, 66 - size]


@varies("counts_by")
def test_counts_are_those_of_found_classes_and_each_class_keeps_its_id():
    """Few labels of the largest known class do not shrink it, as a deal by rank would."""
    problem = planted(spread=0.05, epochs=200)
    labels = problem.data.labels.copy()
    largest = int(problem.counts[:4].argmax())
    labels[np.flatnonzero(labels == largest)[2:]] = -1
    found = {}
    for counts_by in ("clusters", "classes"):
        method = bacon(problem, replace(BASE, counts_by=counts_by, restarts=5))
        method.refresh(0, probe_of(problem.data, labels))
        found[counts_by] = method.class_counts.clone()
    assert found["classes"][:4].tolist() == problem.counts[:4].tolist()
    assert found["clusters"][:4].tolist() != problem.counts[:4].tolist()

    # `method` goes on: what is novel class 4 now stays so, though its images become fewer.
    novel = found["classes"][4:].tolist()
    centroids = method.centroids.clone()
    smaller = np.flatnonzero(problem.true == 4 + int(problem.counts[4:].argmax()))[3:]
    rows = np.setdiff1d(np.arange(len(labels)), smaller)
    fewer = TrainProbe(ReadyTokens(problem.data.source.test(rows)), labels[rows], 0)
    method.refresh(100, fewer)
    assert method.class_counts[4:].tolist() == [3.0, min(novel)]
    assert (method.centroids * centroids).sum(dim=1).min() > 0.9


def test_a_prior_that_is_not_estimated_stays_as_it_is_with_counts_by_classes():
    problem = planted(epochs=200)
    method = bacon(problem, replace(BASE, prior="balanced", counts_by="classes"))
    method.refresh(0, probe_of(problem.data))
    assert method.class_counts.tolist() == pytest.approx([len(problem.true) / 6] * 6)


@varies("start_heads")
@pytest.mark.parametrize(("start_heads", "turned"), [("none", 0), ("novel", 2), ("all", 6)])
def test_rows_of_the_classifier_start_at_found_classes_once_and_keep_their_length(
    start_heads, turned
):
    problem = planted(spread=0.05, epochs=200)
    method = bacon(problem, replace(BASE, start_heads=start_heads))
    before = method.classifier.weight.detach().clone()
    method.refresh(0, probe_of(problem.data))
    weight = method.classifier.weight.detach().clone()
    changed = (weight != before).any(dim=1)
    assert changed.tolist() == [False] * (6 - turned) + [True] * turned
    torch.testing.assert_close(weight.norm(dim=1), before.norm(dim=1))
    if turned == 6:  # before any training the classifier names every planted image
        tokens = problem.data.source.test(np.arange(len(problem.true)))
        ids = method.classify(tokens).argmax(dim=1).numpy()
        assert (match(ids, problem.true, 6)[ids] == problem.true).all()
        assert (ids[problem.true < 4] == problem.true[problem.true < 4]).all()
    method.refresh(10, probe_of(problem.data))
    assert torch.equal(method.classifier.weight, weight)


@varies("centroids_by")
def test_centroids_that_answer_are_those_of_clusters_or_of_found_classes():
    problem = planted(spread=0.6, epochs=200)
    tokens = problem.data.source.test(np.arange(len(problem.true)))
    probe = probe_of(problem.data)
    by_clusters, by_classes = (
        bacon(problem, replace(BASE, centroids_by=kind)) for kind in ("clusters", "classes")
    )
    for method in (by_clusters, by_classes):
        method.place_centroids(probe)
    features = F.normalize(by_classes.features(tokens), dim=1).detach()
    placed = place_classes(features, probe.labels, n_classes=6, n_known=4, seed=0)
    torch.testing.assert_close(by_classes.centroids, placed.centroids)
    assert float(by_classes.temperature) == pytest.approx(placed.temperature)
    assert not torch.allclose(by_clusters.centroids, placed.centroids)
    assert by_clusters.headline == "test_kmeans"
    assert by_classes.headline == "placed"


def test_classes_are_found_by_the_untrained_tail_and_seen_by_the_one_that_answers():
    problem = planted(spread=0.6, epochs=2)
    trainer = trainer_for("bacon-s", problem, centroids_by="untrained", trained_share=1.0)
    trainer.run()
    method, probe = trainer.method, trainer.probe
    tokens = problem.data.source.test(np.arange(len(problem.true)))
    untrained = problem.backbone.new_tail()(tokens).detach()
    torch.testing.assert_close(method.class_features(tokens), untrained)
    assert not torch.allclose(method.features(tokens), untrained)
    method.place_centroids(probe)
    features = F.normalize(method.features(tokens), dim=1).detach()
    placed = place_classes(
        F.normalize(untrained, dim=1), probe.labels, n_classes=6, n_known=4, seed=0
    )
    of_class = torch.from_numpy(placed.class_ids)
    weights = torch.from_numpy(np.where(probe.labels < 0, RULES.unlabeled_weight, 1.0)).float()
    sums = torch.zeros(6, features.shape[1]).index_add_(0, of_class, features * weights[:, None])
    torch.testing.assert_close(method.centroids, F.normalize(sums, dim=1))
    assert method.headline == "placed"


@varies("contrasted")
def test_features_are_contrasted_themselves_or_projected_first():
    step = Step(contrasted="features")
    features = F.normalize(step.method.contrast_tail(step.batch.tokens), dim=1)
    similarity = (features @ features.T).detach().double()
    expected = 0.65 * by_hand.contrast(similarity, same(torch.arange(40).repeat(2)), 1.0)
    assert float(step.terms["contrast/unsupervised"]) == pytest.approx(float(expected), rel=1e-5)
    assert [group.name for group in step.method.groups()] == ["classify", "contrast"]
    assert not any(name.startswith("projector") for name in step.method.state_dict())
    assert any(name.startswith("projector") for name in Step().method.state_dict())


@varies("trained_share")
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_tail_that_answers_lies_between_the_untrained_and_the_trained_one(share):
    problem = planted(epochs=2)
    trainer = trainer_for("bacon-s", problem, trained_share=share)
    trainer.run()
    method, tokens = trainer.method, problem.data.source.test(np.arange(20))
    start = problem.backbone.new_tail().state_dict()
    end = method.contrast_tail.state_dict()
    assert not torch.equal(start["fc2.weight"], end["fc2.weight"])
    expected = problem.backbone.new_tail()
    expected.load_state_dict({k: start[k] + share * (end[k] - start[k]) for k in start})
    torch.testing.assert_close(method.features(tokens), expected(tokens))
    # A method that sorts by centroids alone takes over the tail that answers.
    torch.testing.assert_close(
        by_centroids(method, problem.backbone, problem.task).features(tokens), expected(tokens)
    )


def test_a_kept_model_does_without_the_untrained_tail_it_started_from(tmp_path):
    problem = planted(epochs=1)
    trainer = trainer_for("bacon-s", problem, epochs=1, trained_share=0.5)
    trainer.run()
    method, tokens = trainer.method, problem.data.source.test(np.arange(20))
    method.place_centroids(trainer.probe)
    save_model(
        tmp_path / "model",
        method,
        name="bacon-s",
        settings=asdict(method.settings),
        backbone=describe_backbone(problem.backbone, tuned="block"),
        class_names=list("abcdef"),
        card="",
    )
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.predictor.probabilities(tokens), method.predictor().probabilities(tokens)
    )
    stored = load_file(tmp_path / "model" / "model.safetensors")
    assert {name.split(".")[0] for name in stored} >= {"answer_tail", "contrast_tail"}
    assert not any(name.startswith("start_tail") for name in stored)


@pytest.mark.parametrize("share", ["-0.1", "1.5", "nan"])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(UserError, match="trained_share"):
        settings_for("bacon-s", changes={"trained_share": share})


def test_the_recommended_preset_is_the_released_one_with_our_two_changes():
    for name in ("bacon-s", "bacon-o"):
        presets = METHODS[name].presets
        ours, theirs = (asdict(presets[p].settings) for p in ("recommended", "released"))
        assert presets["recommended"].recipe == presets["released"].recipe
        assert {k: v for k, v in ours.items() if v != theirs[k]} == {
            "centroids_by": "untrained",
            "trained_share": 0.5,
        }


def test_no_setting_is_left_out():
    assert {field.name for field in fields(BaConSettings)} == VARIED
