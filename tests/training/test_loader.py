import threading
from contextlib import closing, suppress

import numpy as np
import pytest
import torch

from bacon_gcd.config import UserError
from bacon_gcd.training.loader import Loader
from tests.planted import planted

PAIRS = ("weak", "weak")


def loader(source=None):
    data = planted().data
    return Loader(source or data.source, data.labels, PAIRS, 3, torch.device("cpu"))


def positions(n_batches=5, size=8):
    rng = np.random.default_rng(0)
    return [rng.integers(len(loader().labels), size=size) for _ in range(n_batches)]


class Counting:
    """A source that says which batches were read, and by whom."""

    def __init__(self, fails_at=None):
        self.source, self.read, self.threads = planted().data.source, [], set()
        self.fails_at = fails_at

    def batch(self, positions, kinds, *, seed, step):
        self.threads.add(threading.current_thread())
        if len(self.read) == self.fails_at:
            raise UserError("photo.png: cannot be read any more")
        self.read.append(step)
        return self.source.batch(positions, kinds, seed=seed, step=step)


def test_batches_that_were_read_ahead_are_those_of_each_step_alone():
    ahead = list(loader().batches(positions(), epoch=4, first=2))
    alone = [
        loader().batch(each, epoch=4, step=step) for step, each in enumerate(positions(), start=2)
    ]
    for ours, theirs in zip(ahead, alone, strict=True):
        assert torch.equal(ours.tokens, theirs.tokens)
        assert (ours.seed, ours.epoch, ours.step) == (theirs.seed, theirs.epoch, theirs.step)


def test_another_thread_reads_a_few_batches_ahead_and_never_all():
    source = Counting()
    with closing(loader(source).batches(positions(20), epoch=0)) as batches:
        next(batches)
        next(batches)
        assert threading.main_thread() not in source.threads
    assert len(source.read) <= 5
    assert not any(thread.is_alive() for thread in source.threads)


def test_an_image_that_cannot_be_read_stops_the_step_that_needs_it_and_the_thread():
    source = Counting(fails_at=3)
    batches = loader(source).batches(positions(), epoch=0)
    for _ in range(3):
        next(batches)
    with pytest.raises(UserError, match=r"photo\.png: cannot be read any more"):
        next(batches)
    assert not any(thread.is_alive() for thread in source.threads)


def test_an_error_in_a_step_ends_the_thread():
    source = Counting()
    with (
        suppress(KeyboardInterrupt),
        closing(loader(source).batches(positions(), epoch=0)) as batches,
    ):
        next(batches)
        raise KeyboardInterrupt
    assert source.threads
    assert not any(thread.is_alive() for thread in source.threads)
