import time

from bacon_gcd.system import progress


def test_long_work_says_what_it_is_and_short_work_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.01)
    with progress.working("counting"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "counting ...\n"
    monkeypatch.setattr(progress, "QUIET_SECONDS", 60.0)
    with progress.working("counting"):
        pass
    assert capsys.readouterr().err == ""
