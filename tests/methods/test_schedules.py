import pytest

from bacon_gcd.methods.base import Task
from bacon_gcd.methods.schedules import ramp
from tests.method_runs import trainer_for
from tests.planted import planted


@pytest.mark.parametrize(
    ("epoch", "epochs", "expected"),
    [
        *((0, 30, 0.07), (29, 30, 0.04), (199, 30, 0.04), (10, 30, 0.07 - 0.03 * 10 / 29)),
        *((0, 1, 0.07), (1, 1, 0.04)),
    ],
)
def test_a_ramp_has_both_ends_and_stays_at_the_second(epoch, epochs, expected):
    assert ramp(0.07, 0.04, epoch=epoch, epochs=epochs) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n_epochs", "scaled", "capped"), [(200, 30, 30), (400, 60, 30), (30, 4, 30), (3, 1, 3)]
)
def test_a_length_is_a_share_of_the_run_or_stays_as_it_is(n_epochs, scaled, capped):
    task = Task(6, 4, (1, 1, 1, 1), 10, n_epochs)
    assert (task.scaled(30), task.capped(30)) == (scaled, capped)
    assert Task(6, 4, (1, 1, 1, 1), 10, 0).capped(30) == 1  # without training, too


def test_in_a_run_of_30_epochs_each_schedule_is_as_the_documents_say():
    """docs/methods/README.md, the table of schedules."""
    problem = planted(epochs=30)

    def method(name, **changes):
        return trainer_for(name, problem, epochs=30, **changes).method

    for name in ("bacon-s", "simgcd"):  # own length: 30 epochs
        ramped = method(name).teacher_temperature
        assert ramped(28) > ramped(29) == pytest.approx(0.04)
    warm = method("bacon-s", warmup=5)  # own length
    assert [warm.gammas(epoch)[1] > 0 for epoch in (4, 5)] == [False, True]
    bacon, estimated = method("bacon-s", interval=10), []
    bacon.estimate = lambda probe: estimated.append(epoch) or bacon.class_counts
    for epoch in range(6):
        bacon.refresh(epoch, None)
    assert estimated == [0, 2, 4]  # a twentieth of the run
    novel = method("opencon").novel_weight  # half of the run
    assert novel(14) < novel(15) == pytest.approx(0.1)
    darp = method("darp", warmup=80)  # two fifths of the run
    assert [darp.warming_up(epoch) for epoch in (11, 12)] == [True, False]
    rates = method("abc").rates  # the whole run
    assert rates(15)[1].min() == pytest.approx((1 + float(rates(30)[1].min())) / 2)
