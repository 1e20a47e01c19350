"""What several tests of discoveries share."""

import pytest

from bacon_gcd.discovery import learn
from bacon_gcd.discovery.trial import Trial


@pytest.fixture
def training_pays(monkeypatch):
    """Hidden classes always speak for training: the planted ones are too few to say anything."""
    monkeypatch.setattr(learn, "try_training", lambda *args, **facts: Trial(50, 2, 0.5, 0.9))
