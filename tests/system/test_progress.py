import time

from bacon_gcd.system import progress as shown
from bacon_gcd.system.progress import followed_by, progress, time_left, working


def test_the_time_left_is_that_of_the_whole_command():
    assert time_left(50, speed=10.0) == "5 s left"
    with followed_by(20), followed_by(10):
        assert time_left(50, speed=10.0) == "35 s left"
        assert time_left(0, speed=10.0) == "30 s left"
    assert time_left(6000, speed=10.0) == "10 min left"


def test_a_log_file_gets_a_line_with_the_time_left(capsys, monkeypatch):
    times = iter([0.0, 20.0, 21.0, 40.0])
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(times))
    with followed_by(60), progress("embedding", 100) as advance:
        advance(20)  # after 20 s: shown
        advance(1)  # a second later: not shown
        advance(19, note="2 views each")
    assert capsys.readouterr().err.splitlines() == [
        "embedding: 20/100 images, 1.0/s, 2 min left",
        "embedding: 40/100 images, 1.0/s, 2 min left 2 views each",
    ]


def test_of_several_processes_one_shows_progress(capsys, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    times = iter([0.0, 20.0])
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(shown, "QUIET_SECONDS", 0.01)
    with progress("embedding", 100) as advance, working("counting"):
        advance(20)
        time.sleep(0.1)
    assert not capsys.readouterr().err


def test_long_work_says_what_it_is_and_short_work_nothing(monkeypatch, capsys):
    monkeypatch.setattr(shown, "QUIET_SECONDS", 0.01)
    with working("counting"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "counting ...\n"
    monkeypatch.setattr(shown, "QUIET_SECONDS", 60.0)
    with working("counting"):
        pass
    assert capsys.readouterr().err == ""


def test_where_there_is_nothing_to_do_no_bar_is_shown(monkeypatch, capsys):
    monkeypatch.setattr(shown.sys.stderr, "isatty", lambda: True)
    with progress("training", 0) as advance:
        advance(0)
    assert capsys.readouterr().err == ""
    with progress("training", 1) as advance:
        advance()
    assert "training" in capsys.readouterr().err
