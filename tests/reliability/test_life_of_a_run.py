"""Random lives of a run: review, refit, update, recut, export, predict, in any order.

Whatever a person does, no image is lost, no id is given twice, images that are certain stay where
they are, every edit can be replayed, and what cannot be done is refused in one line.
"""

import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import bacon_gcd
from bacon_gcd.config import UserError
from bacon_gcd.data.images import read_images
from bacon_gcd.discovery import summary
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.export import export, plan_export, undo_export
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.predict import predict
from bacon_gcd.discovery.recut import recut
from bacon_gcd.discovery.refit import refit
from bacon_gcd.discovery.update import update
from tests.planted_photos import plant, vectors_of
from tests.soaking import SECONDS, rounds

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'bacon-gcd[review]'")
from bacon_gcd.review.asked import NotThereError
from bacon_gcd.review.session import Session

MOST_ADDED = 2


def with_vectors(folder):
    """The vectors of a folder's images, in a file beside it."""
    path = folder.with_suffix(".npy")
    np.save(path, vectors_of(read_images(folder).ids))
    return path


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run and images to add, which every life begins with."""
    folder = tmp_path_factory.mktemp("first")
    plant(folder / "photos", n=6, labeled=3)
    plant(folder / "more", n=2, labeled=1)
    vectors, _ = with_vectors(folder / "photos"), with_vectors(folder / "more")
    bacon_gcd.discover(folder / "photos", folder / "run", features=vectors, classes=4)
    return folder


def refused(what, *args, **options):
    """Whether it is refused, which takes one line."""
    said = ""
    try:
        what(*args, **options)
    except (UserError, NotThereError) as error:
        said = str(error)
    assert "\n" not in said
    return bool(said)


class Life(RuleBasedStateMachine):
    """One run and what becomes of it."""

    first: Path

    @initialize()
    def begin(self):
        self.home = Path(tempfile.mkdtemp())
        self.run = shutil.copytree(self.first / "run", self.home / "0")
        self.n_made = self.n_added = 0
        self.images = {row.file_name for row in DiscoverRun.load(self.run).rows}
        self.names_of_ids = {}
        self.session = Session(self.run)

    def teardown(self):
        if hasattr(self, "home"):
            shutil.rmtree(self.home)

    def now(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an edit that does not replay is warned about
            return corrected(DiscoverRun.load(self.run))

    # Review

    def ask(self, **asked):
        before = self.session.state()["images"]
        if refused(self.session.edit, asked):
            assert self.session.state()["images"] == before

    def a_class(self, data):
        return data.draw(st.sampled_from(sorted(self.session.edited.classes)))

    def some(self, data):
        rows = st.integers(0, len(self.images) - 1)
        return data.draw(st.lists(rows, min_size=1, max_size=6, unique=True))

    @rule(data=st.data(), name=st.sampled_from(["owl", "red", "novel_000", "ü", "=1+1", "a/b"]))
    def rename(self, data, name):
        self.ask(kind="rename", **{"class": self.a_class(data)}, to=name)

    @rule(data=st.data())
    def merge(self, data):
        self.ask(kind="merge", classes=[self.a_class(data)], to=self.a_class(data))

    @rule(data=st.data(), new=st.booleans())
    def move(self, data, new):
        to = f"new {self.n_made} {len(self.names_of_ids)}" if new else self.a_class(data)
        self.ask(kind="move", images=self.some(data), to=to)

    @rule(data=st.data(), kind=st.sampled_from(["confirm", "wrong"]))
    def mark(self, data, kind):
        self.ask(kind=kind, images=self.some(data))

    @rule(data=st.data())
    def split(self, data):
        self.ask(kind="split", **{"class": self.a_class(data)}, parts=2)

    @rule()
    def undo(self):
        self.ask(kind="undo")

    @rule()
    def restart(self):
        """The server is stopped and started: the page shows the same."""
        before = self.session.state()
        self.session = Session(self.run)
        again = self.session.state()
        assert [again[key] for key in ("images", "classes", "skipped")] == [
            before[key] for key in ("images", "classes", "skipped")
        ]

    # Commands

    def make(self, command, *args, **options):
        """A new run from this one; what the person said holds in it."""
        before, out = self.now(), self.home / str(self.n_made + 1)
        if refused(command, self.run, *args, out, **options):
            assert not out.exists()
            return False
        self.n_made += 1
        self.run, self.session = out, Session(out)
        self.check_kept(before, self.now())
        return True

    @rule(classes=st.sampled_from([None, None, "auto", 3, 5]))
    def refit(self, classes):
        self.make(refit, classes=classes)

    @rule(classes=st.integers(2, 7))
    def recut(self, classes):
        self.make(recut, classes=classes)

    @precondition(lambda self: self.n_added < MOST_ADDED)
    @rule()
    def update(self):
        more, vectors = self.first / "more", self.first / "more.npy"
        if self.make(update, more, features=vectors):
            self.n_added += 1
            added = {row.file_name for row in DiscoverRun.load(self.run).rows} - self.images
            assert len(added) == len(read_images(more))
            self.images |= added

    @rule(how=st.sampled_from(["copy", "hardlink", "symlink"]))
    def export(self, how):
        run, to = DiscoverRun.load(self.run), self.home / "sorted"
        plan = plan_export(run, how=how)
        files = {str(run.file_of(row).absolute()) for row in range(len(run.rows))}
        assert ({item.source for item in plan.items}, plan.left_out) == (files, {})
        assert export(plan, to, roots=run.roots)["placed"] == len(plan.items)
        assert sum(path.is_file() for path in to.rglob("*")) == len(plan.items) + 1  # and the list
        assert undo_export(to)["kept"] == {}
        assert not to.exists()

    @rule()
    def predict(self):
        rows = predict(self.run, self.first / "more", features=self.first / "more.npy")
        assert len(rows) == len(read_images(self.first / "more"))
        assert {row["class"] for row in rows} <= {each.name for each in self.now().classes}

    # What holds

    def check_kept(self, before, after):
        was, now = ({c.name: c for c in each.classes} for each in (before, after))
        home = {row.file_name: now[row.class_name].id for row in after.rows}
        wrong = set(before.constraints.cannot_link)
        for row in before.rows:
            stays = row.labeled or row.file_name in before.constraints.confirmed
            if stays and (row.file_name, row.class_name) not in wrong:
                assert home[row.file_name] == was[row.class_name].id, row
        assert after.next_id >= before.next_id
        names = {each.id: each.name for each in after.classes}
        for each in before.classes:
            assert names.get(each.id, each.name) == each.name, "a class changed its name"
        assert all(each.id >= before.next_id for each in after.classes if each.name not in was)

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "run"):
            return
        now = self.now()
        assert {row.file_name for row in now.rows} == self.images
        assert len(now.rows) == len(self.images)
        assert len({each.id for each in now.classes}) == len(now.classes)
        assert {row.class_name for row in now.rows} <= {each.name for each in now.classes}
        assert now.next_id > max(each.id for each in now.classes)
        ids = {each.name: each.id for each in now.classes}
        shown = self.session.state()
        assert shown["images"]["class"] == [ids[row.class_name] for row in now.rows]
        assert shown["skipped"] == []


def test_nothing_is_lost_in_the_life_of_a_run(first, monkeypatch):
    monkeypatch.setattr(summary, "write_report", lambda data, path: path)  # half of the time
    monkeypatch.setattr(Life, "first", first, raising=False)
    examples, steps = (20, 25) if SECONDS else (5, 12)
    for _ in rounds(f"lives of a run, {examples} each", short=1, share=0.15):
        run_state_machine_as_test(
            Life,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                derandomize=not SECONDS,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
