"""What version 0.1 wrote (tests/fixtures/v0.1) is still read, and gives the same answers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bacon_gcd.backbone.sources import ReadyTokens
from bacon_gcd.backbone.vectors import Vectors
from bacon_gcd.config import UserError
from bacon_gcd.methods import recipe_for, settings_for
from bacon_gcd.methods.stored import load_state, split_temperature
from bacon_gcd.model import load_model
from bacon_gcd.training.checkpoint import load_checkpoint
from bacon_gcd.training.start import new_trainer
from tests.method_runs import trainer_for

OLD = Path(__file__).parents[1] / "fixtures" / "v0.1"
EXPECTED = json.loads((OLD / "expected.json").read_text())


@pytest.mark.parametrize("name", ["bacon-s", "abc", "anchored-kmeans"])
def test_an_old_model_gives_the_answers_it_gave(name):
    """bacon-s and abc have an `epoch`, abc an oracle, anchored-kmeans sharpened centroids."""
    model = load_model(OLD / name)
    new = torch.tensor(EXPECTED["tokens"])
    found = model.predictor.probabilities(new)
    np.testing.assert_allclose(found, EXPECTED[name], atol=2e-6)
    assert model.method.oracle_counts is None


def test_the_temperature_of_an_old_model_becomes_a_number():
    method = load_model(OLD / "anchored-kmeans").method
    assert float(method.temperature) == pytest.approx(0.03)
    torch.testing.assert_close(method.centroids.norm(dim=1), torch.ones(4))


def test_unit_centroids_of_an_old_model_are_not_touched():
    centroids = torch.nn.functional.normalize(torch.randn(5, 7), dim=1)
    centroids[4] = 0.0  # a class without images
    same, temperature = split_temperature(centroids)
    assert same is centroids
    assert float(temperature) == pytest.approx(0.1)


def test_an_old_checkpoint_is_resumed_to_the_same_end():
    """Stopped in the second epoch; its `epoch` and `epoch_steps` are in the position now."""
    source = ReadyTokens(np.array(EXPECTED["views"], dtype=np.float32), n_views=2)
    settings = settings_for("darp", changes={"warmup": 1, "interval": 2, "threshold": 0.4})
    asked = {"epochs": 3, "batch_size": 16, "learning_rate": 0.05}
    trainer = new_trainer(
        "darp",
        settings,
        recipe_for("darp", changes=asked),
        source,
        np.array(EXPECTED["labels"]),
        Vectors(8),
        n_classes=4,
        n_known=2,
        seed=0,
    )
    trainer.restore(*load_checkpoint(OLD / "darp" / "step-00000001"))
    assert trainer.run()
    found = trainer.method.predictor().probabilities(torch.tensor(EXPECTED["tokens"]))
    np.testing.assert_allclose(found, EXPECTED["darp"], atol=2e-6)


def test_a_state_of_another_method_is_refused_in_one_line():
    state = trainer_for("gcd").method.state_dict()
    with pytest.raises(UserError, match=r"^stored weights do not fit: missing .*, extra \['tail"):
        load_state(trainer_for("darp").method, state)
