"""What a run notes of itself."""

from types import SimpleNamespace

from bacon_gcd.benchmark import recorder as recorder_module
from bacon_gcd.benchmark.recorder import RunRecorder


def test_computing_time_is_that_of_training_without_scores_and_preparation(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(recorder_module.time, "process_time", lambda: clock.now)
    monkeypatch.setattr(recorder_module, "quick_scores", lambda *_: _later(clock, 100.0))
    bench = SimpleNamespace(labels=[0, 0], settings=SimpleNamespace(evaluate_every=1))
    trainer = SimpleNamespace(
        position=SimpleNamespace(epoch=1),
        recipe=SimpleNamespace(epochs=2),
        optimizers={"all": SimpleNamespace(param_groups=[{"lr": 0.1}])},
        method=None,
    )
    recorder = RunRecorder(tmp_path, bench)
    clock.now += 50.0  # tokens are computed
    recorder.start()
    for _ in range(2):
        clock.now += 3.0
        recorder.after_epoch(trainer, {"loss": 1.0}, 8.0)
    assert recorder.cpu_seconds == 6.0
    assert recorder.seconds == 16.0


def _later(clock, seconds):
    clock.now += seconds
    return {"all": 1.0, "old": 1.0, "new": 1.0}
