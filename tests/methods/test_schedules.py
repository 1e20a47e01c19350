import pytest

from bacon_gcd.methods.schedules import ramp


@pytest.mark.parametrize(
    ("epoch", "epochs", "expected"),
    [
        *((0, 30, 0.07), (29, 30, 0.04), (199, 30, 0.04), (10, 30, 0.07 - 0.03 * 10 / 29)),
        *((0, 1, 0.07), (1, 1, 0.04)),
    ],
)
def test_a_ramp_has_both_ends_and_stays_at_the_second(epoch, epochs, expected):
    assert ramp(0.07, 0.04, epoch=epoch, epochs=epochs) == pytest.approx(expected)
