import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from bacon_gcd import CategoryDiscovery
from bacon_gcd.classes.find import find_classes
from bacon_gcd.cluster import unit
from bacon_gcd.config import UserError
from bacon_gcd.data.labels import encode
from tests.planted import planted

QUICK = {"epochs": 2, "batch_size": 32, "settings": {"projector_width": 0, "interval": 200}}

EXPECTED_FAILURES = {
    # Nothing so far: every contract of scikit-learn is kept.
}


@pytest.fixture(scope="module")
def problem():
    return planted(spread=0.3)


def vectors(problem):
    return problem.data.source.test(np.arange(len(problem.true))).numpy()


@pytest.fixture(scope="module")
def fitted(problem):
    y = np.where(problem.data.labels >= 0, problem.data.labels, -1)
    return CategoryDiscovery(n_classes=6, **QUICK).fit(vectors(problem), y)


@parametrize_with_checks(
    [CategoryDiscovery(n_classes=4, **QUICK), CategoryDiscovery(epochs=0)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learns_contract(estimator, check):
    check(estimator)


def test_planted_classes_are_found_and_known_ones_keep_their_numbers(problem, fitted):
    known = problem.true < 4
    assert (fitted.labels_[known] == problem.true[known]).mean() > 0.95
    assert fitted.score(vectors(problem), problem.true) > 0.95
    test = problem.test.test(np.arange(len(problem.true_test))).numpy()
    assert fitted.score(test, problem.true_test) > 0.95
    assert fitted.n_features_in_ == 16
    assert len(fitted.class_counts_) == 6


def test_labeled_samples_never_leave_their_class(problem):
    y = problem.data.labels.copy()
    mislabeled = np.flatnonzero(y == 0)[0]
    y[mislabeled] = 1
    model = CategoryDiscovery(n_classes=6, **QUICK).fit(vectors(problem), y)
    assert (model.labels_[y >= 0] == y[y >= 0]).all()


def test_names_in_names_out(problem):
    y = np.array(["wolf", "fox", "bear", "owl", "?", "?"], dtype=object)[problem.true]
    y[problem.data.labels < 0] = -1
    model = CategoryDiscovery(n_classes=6, **QUICK).fit(vectors(problem), y)
    assert model.classes_.tolist() == ["bear", "fox", "owl", "wolf", "novel_000", "novel_001"]
    assert set(model.predict(vectors(problem))) <= set(model.classes_)
    assert (model.labels_[y == "wolf"] == "wolf").all()


def test_probabilities_and_features_have_the_promised_form(problem, fitted):
    X = vectors(problem)
    p = fitted.predict_proba(X)
    assert p.shape == (len(X), 6)
    assert np.allclose(p.sum(axis=1), 1, atol=1e-5)
    assert np.array_equal(p.argmax(axis=1), fitted.predict(X))
    assert np.allclose(np.linalg.norm(fitted.transform(X), axis=1), 1, atol=1e-5)


def test_a_saved_model_predicts_the_same_bit_for_bit(problem, fitted, tmp_path):
    fitted.save(tmp_path / "model")
    back = CategoryDiscovery.load(tmp_path / "model")
    X = vectors(problem)
    assert np.array_equal(back.predict_proba(X), fitted.predict_proba(X))
    assert back.classes_.tolist() == fitted.classes_.tolist()
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "README.md",
        "estimator.json",
        "model.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("{}", "parameters"),
        ("[]", "estimator.json"),
        ('{"parameters": 5, "known": []}', "parameters"),
        ('{"parameters": {"zzz": 1}, "known": [0, 1, 2, 3]}', "zzz"),
        ('{"parameters": {}, "known": 5}', "known"),
        ('{"parameters": {}, "known": [0, [1]]}', "known"),
        ('{"parameters": {}, "known": ["a"]}', "1 known classes; the model has 4"),
        ('{"parameters": {}, "known": [0, 1, 2, 3], "class_counts": "x"}', "class_counts"),
    ],
)
def test_a_damaged_description_is_refused_in_one_line(fitted, tmp_path, wrong, said):
    fitted.save(tmp_path)
    (tmp_path / "estimator.json").write_text(wrong)
    with pytest.raises(UserError, match=said) as caught:
        CategoryDiscovery.load(tmp_path)
    assert "estimator.json" in str(caught.value)
    (tmp_path / "estimator.json").unlink()
    with pytest.raises(UserError, match=r"estimator\.json"):
        CategoryDiscovery.load(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_line(fitted, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file"):
        fitted.save(tmp_path / "file" / "model")
    with pytest.raises(UserError, match="too long"):
        fitted.save(tmp_path / ("a" * 300))


def test_a_damaged_model_is_refused_in_one_line(fitted, tmp_path):
    fitted.save(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data[:-1] + b"x")
    with pytest.raises(UserError, match=r"model.safetensors: missing or damaged"):
        CategoryDiscovery.load(tmp_path)


def test_the_same_seed_gives_the_same_model_and_touches_no_global_state(problem):
    X, y = vectors(problem), problem.data.labels
    model = CategoryDiscovery(n_classes=6, **QUICK)
    torch.manual_seed(5)
    first = model.fit(X, y).predict_proba(X)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    assert np.array_equal(first, clone(model).fit(X, y).predict_proba(X))


def test_the_number_of_classes_is_counted_as_discover_counts(problem):
    X, labels = vectors(problem), problem.data.labels
    model = CategoryDiscovery(**QUICK).fit(X, labels)
    counted = find_classes(unit(X), labels, seed=0).number.estimate
    assert len(model.classes_) == counted > 4, "new classes are found"
    assert model.score(X, problem.true) > 0.9
    assert model.class_counts_.sum() == len(X)


def test_without_labels_the_classes_are_counted_too(problem):
    model = CategoryDiscovery(epochs=0).fit(vectors(problem))
    assert 2 <= len(model.classes_) <= 12


def test_a_known_class_called_like_a_novel_one_stays_its_own(problem):
    y = np.array(["novel_000", "fox", "bear", "owl", "?", "?"], dtype=object)[problem.true]
    y[problem.data.labels < 0] = -1
    model = CategoryDiscovery(n_classes=6, epochs=0).fit(vectors(problem), y)
    assert sorted(set(model.classes_)) == sorted(model.classes_)
    assert model.classes_.tolist()[-2:] == ["novel_001", "novel_002"]
    assert (model.labels_[problem.true >= 4] != "novel_000").all()


def test_the_images_are_as_large_as_the_backbone_wants_them(tmp_path, monkeypatch):
    from tests.small_backbone import use_small_backbone

    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    images = np.random.default_rng(0).integers(0, 256, size=(8, 20, 20, 3), dtype=np.uint8)
    model = CategoryDiscovery(n_classes=2, epochs=0).fit(images)
    assert model.model_.backbone.image_size == 64
    assert CategoryDiscovery(n_classes=2, epochs=0, device="cpu").fit(images).labels_.shape == (8,)


def test_images_as_arrays_and_files_give_the_same(tmp_path, monkeypatch):
    from PIL import Image

    from tests.small_backbone import use_small_backbone

    monkeypatch.setenv("BACON_CACHE", str(tmp_path / "cache"))
    use_small_backbone(monkeypatch)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(24, 20, 20, 3), dtype=np.uint8)
    images[:12] //= 4  # dark ones and bright ones
    labels = np.where(np.arange(24) % 2, np.arange(24) // 12, -1)
    files = [tmp_path / f"{i:02d}.png" for i in range(24)]
    for file, image in zip(files, images, strict=True):
        Image.fromarray(image).save(file)
    settings = QUICK | {"views": 2}
    model = CategoryDiscovery(n_classes=3, **settings).fit(images, labels)
    assert np.array_equal(model.predict_proba(images), model.predict_proba(files))
    assert len(CategoryDiscovery(n_classes=3, **settings).fit(files, labels).labels_) == 24


@pytest.mark.parametrize(
    ("parameters", "y", "message"),
    [
        ({"n_classes": 3}, [0, 1, 2, 3] * 3, "n_classes 3 must be at least the 4 known classes"),
        ({"n_classes": 13}, [0, 1] * 6, "at most the 12 samples"),
        ({"n_classes": 3, "method": "magic"}, [0, 1] * 6, "method 'magic' is not known"),
        ({"n_classes": 3}, [0, 1], "y has 2 values for 12 samples"),
        ({"n_classes": 0}, [0, 1] * 6, "n_classes 0: give a whole number from 1, or None"),
        ({"n_classes": 2.5}, [0, 1] * 6, "n_classes 2.5: give a whole number from 1, or None"),
        ({"epochs": -1}, [0, 1] * 6, "epochs -1: give a whole number from 0, or None"),
        ({"batch_size": -1}, [0, 1] * 6, "batch_size -1: give a whole number from 1, or None"),
        ({"views": 1}, [0, 1] * 6, "views 1: give a whole number from 2"),
        ({"random_state": -1}, [0, 1] * 6, "random_state -1: give a whole number from 0 to"),
        ({"random_state": 2**32}, [0, 1] * 6, "random_state 4294967296: give a whole number"),
        ({"learning_rate": 0.0}, [0, 1] * 6, "learning_rate 0.0: give a number above 0"),
        ({}, [1, "1", "2"] * 4, "label '1' in y is a name and a number"),
        ({"learning_rate": "x"}, [0, 1] * 6, "learning_rate 'x': give a number above 0"),
        ({"learning_rate": np.inf}, [0, 1] * 6, "learning_rate inf: give a number above 0"),
        ({"device": "abacus"}, [0, 1] * 6, "device 'abacus'"),
        ({}, [0.2, 0.7] * 6, "label 0.2 in y is not a whole number; give integers or names"),
        ({}, [0, 2**63 - 1] * 6, "label 9223372036854775807 in y: integers go up to"),
        ({}, [0, (1, 2)] * 6, "y has 18 values|give integers or names"),
    ],
)
def test_mistakes_are_one_line_that_names_the_value(parameters, y, message):
    X = np.random.default_rng(0).normal(size=(12, 4))
    with pytest.raises(UserError, match=message):
        CategoryDiscovery(**QUICK | parameters).fit(X, y)


def test_every_way_to_say_unlabeled_is_understood():
    known, labels = encode([3, -1, None, float("nan"), 1, "", "unlabeled"], 7)
    assert known == [1, 3]
    assert labels.tolist() == [1, -1, -1, -1, 0, -1, -1]
