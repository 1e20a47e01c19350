"""Sorted images as folders, one per class: planned, written down, then done; and undone again.

The whole plan is on disk before the first image is touched. An image appears under its new name
whole or not at all, so after a kill at any moment the same command continues and undo restores.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from bacon_gcd.config import UserError, choose
from bacon_gcd.data.entries import UNLABELED_FOLDERS, extensions
from bacon_gcd.discovery.apply import corrected
from bacon_gcd.discovery.export_list import (
    HOW,
    MANIFEST,
    Item,
    Plan,
    is_cut_off,
    read_plan,
    write_plan,
)
from bacon_gcd.discovery.folder import DiscoverRun
from bacon_gcd.discovery.placing import PART, is_ours, move, place
from bacon_gcd.discovery.safe_names import safe_file_name, safe_name, same_name_key, unique_name
from bacon_gcd.system.files import one_line_errors
from bacon_gcd.system.locks import locked, refuse_nameless, remove_parts
from bacon_gcd.system.text import command

UNSORTED = "_unlabeled"  # where images marked as wrong go: read_folder takes it for unlabeled


def plan_export(run: DiscoverRun, *, how: str) -> Plan:
    """Folders per class with the edits applied; images marked as wrong go to `_unlabeled`."""
    choose("--how", how, HOW)
    if not run.root.is_dir():
        raise UserError(f"{run.root}: no such folder; only images in files can be exported")
    rows, classes, constraints, _ = corrected(run)
    wrong = set(constraints.cannot_link)
    taken = {same_name_key(name) for name in (MANIFEST, PART, *UNLABELED_FOLDERS)}
    folders = {each.name: unique_name(safe_name(each.name), taken) for each in classes}
    folder_of = [
        UNSORTED if (row.file_name, row.class_name) in wrong else folders[row.class_name]
        for row in rows
    ]
    return _with_files(run, how, folder_of)


def _with_files(run: DiscoverRun, how: str, folder_of: list[str]) -> Plan:
    """Find every row's file; several boxes of one file are exported once per class."""
    left_out: dict[str, str] = {}
    wanted: dict[tuple[Path, str], None] = {}
    for number, folder in enumerate(folder_of):
        try:
            wanted[(_file_to_place(run, number, how), folder)] = None
        except UserError as error:
            left_out[run.rows[number].file_name] = str(error)
    times = Counter(file for file, _ in wanted)
    torn = {file for file in times if how == "move" and times[file] > 1}
    left_out |= {str(file): "its boxes are in several classes; use --how copy" for file in torn}
    taken: dict[str, set[str]] = {}
    items = []
    for file, folder in wanted:
        if file not in torn:
            names = taken.setdefault(folder, set())
            name = unique_name(safe_file_name(file), names, suffix=file.suffix)
            items.append(Item(str(file), f"{folder}/{name}"))
    return Plan(str(run.folder.resolve()), how, tuple(items), left_out)


def _file_to_place(run: DiscoverRun, number: int, how: str) -> Path:
    file = run.file_of(number).absolute()
    real = file.resolve()
    linked = file.is_symlink() or not any(real.is_relative_to(each.resolve()) for each in run.roots)
    if how == "move" and linked:
        raise UserError("a link is not moved; use --how copy")
    return file


def export(plan: Plan, to: Path, *, roots: Iterable[Path]) -> dict[str, Any]:
    """Write the plan down, then do it; the same plan again continues or finds all done.

    roots: the source folders, which must not hold the export.
    """
    to = to.absolute()
    for root in roots:
        if to.resolve().is_relative_to(root.resolve()):
            raise UserError(f"{to}: inside the images' own folder {root}; choose one outside of it")
    with _alone(to):
        _write_down(plan, to)
        done = Counter(_place(item, to, plan.how) for item in plan.items)
        for folder in {(to / item.target).parent for item in plan.items}:
            (folder / PART).unlink(missing_ok=True)
    return summary(plan, to) | {"placed": done["placed"], "there already": done["there"]}


@contextmanager
def _alone(to: Path) -> Iterator[None]:
    """One process at a time in an export; errors of the file system become one line."""
    refuse_nameless(to)
    lock = to.with_name(f".{to.name}.lock")
    with one_line_errors():
        lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, busy=f"{to}: another process is exporting or undoing there"):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)


def _write_down(plan: Plan, to: Path) -> None:
    """The list of an export before its first image; one that is there must be of this plan."""
    if not (to / MANIFEST).exists():
        remove_parts(to, MANIFEST)  # a kill while the list was written: no image was touched yet
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise UserError(f"{to}: not an empty folder; an export needs one of its own")
    elif is_cut_off(plan, to):  # not by us, who write it whole: by a file system, or a hand
        _refuse_other_files(plan, to)
    else:
        before = read_plan(to)
        if (before.items, before.how) != (plan.items, plan.how):
            raise UserError(
                f"{to}: holds another export, or classes were edited since;"
                f" first: {_undo_command(to)}"
            )
        return
    write_plan(plan, to)


def _refuse_other_files(plan: Plan, to: Path) -> None:
    """Refuse to complete a list that was cut off where the folder may be of another export."""
    why = f"{to / MANIFEST}: cut off, and cannot be completed:"
    sources = {to / item.target: Path(item.source) for item in plan.items}
    for file in to.rglob("*"):
        if (file.is_dir() and not file.is_symlink()) or file.name in (MANIFEST, PART):
            continue
        if file not in sources or not is_ours(sources[file], file, plan.how):
            raise UserError(f"{why} {file} is not what this command would put there")
    names = Counter(source.name for source in sources.values())
    if plan.how == "move" and max(names.values(), default=0) > 1:  # edits may have swapped them
        name = names.most_common(1)[0][0]
        raise UserError(f"{why} {names[name]} images are named {name}; move them back by hand")


def _undo_command(to: Path) -> str:
    return command("bacon", "export", "--undo", to)


def summary(plan: Plan, to: Path) -> dict[str, Any]:
    """What the plan comes to, in numbers."""
    sizes = Counter(PurePosixPath(item.target).parts[0] for item in plan.items)
    return {
        "to": str(to),
        "how": plan.how,
        "images": len(plan.items),
        "folders": dict(sorted(sizes.items())),
        "left out": plan.left_out,
    }


def _place(item: Item, to: Path, how: str) -> str:
    """Do one item; "there" if it was done before. Nothing is ever overwritten."""
    source, target = Path(item.source), to / item.target
    if target.parent.is_symlink():
        raise UserError(f"{target.parent}: a link; an export follows none")
    target.parent.mkdir(exist_ok=True)
    if os.path.lexists(target):
        if not is_ours(source, target, how):
            raise UserError(f"{target}: is there already and is not {source}; nothing overwritten")
        if how == "move":
            source.unlink(missing_ok=True)  # killed between the two halves of a move
        return "there"
    if not source.exists():
        raise UserError(f"{source}: no such file any more; undo with: {_undo_command(to)}")
    try:
        place(source, target, how)
    except OSError as error:
        raise UserError(
            f"{target}: {how} failed: {error.strerror}; continue with the same command,"
            f" or: {_undo_command(to)}"
        ) from None
    return "placed"


def undo_export(to: Path, *, images: Path | None = None) -> dict[str, Any]:
    """Take an export back: moved images return, copies and links go, changed files stay.

    Images return only into folders that the run's images came from, which the run itself says.
    images: that folder, if the run is gone.
    """
    to = to.absolute()
    with _alone(to):
        if _was_never_begun(to):
            return {"undone": str(to), "how": "nothing was exported", "images": 0, "kept": {}}
        plan = read_plan(to)
        kept = _take_all_back(plan, to, _roots_of(plan, images))
        if not kept:
            (to / MANIFEST).unlink()
            _remove_empty([to])
    back = len(plan.items) - len(kept)
    return {"undone": str(to), "how": plan.how, "images": back, "kept": kept}


def _was_never_begun(to: Path) -> bool:
    """Whether the list was being written when the export was killed; what it left is removed."""
    if (to / MANIFEST).exists() or not list(to.glob(f".{MANIFEST}.*.part")):
        return False
    remove_parts(to, MANIFEST)
    _remove_empty([to])
    return True


def _roots_of(plan: Plan, images: Path | None) -> list[Path]:
    """Where the images came from. The list of the export is not asked: it may be anybody's."""
    if images is not None:
        return [images.absolute()]
    try:
        return [root.absolute() for root in DiscoverRun.load(plan.run).roots]
    except UserError as error:
        raise UserError(
            f"the run of this export cannot be read ({error}); "
            "name the folder of its images with --images FOLDER"
        ) from None


def _take_all_back(plan: Plan, to: Path, roots: Collection[Path]) -> dict[str, str]:
    """Undo every item; target -> why it has to stay."""
    kept = {}
    for item in plan.items:
        source, target = Path(item.source), to / item.target
        if reason := _outside(source, roots) or _take_back(source, target, plan.how, roots):
            kept[item.target] = reason
    _remove_empty((to / item.target).parent for item in plan.items)
    for folder in {Path(item.source).parent for item in plan.items}:
        if any(folder.is_relative_to(root) for root in roots):
            (folder / PART).unlink(missing_ok=True)  # of an undo that was killed
    return kept


def _outside(source: Path, roots: Collection[Path]) -> str:
    """Why a file cannot have come from these folders, if so."""
    if "\0" in str(source):
        return f"its source {str(source)!r} is no name of a file"
    if not any(source.is_relative_to(root) for root in roots):
        return f"its source {source} is outside of {', '.join(map(str, roots))}"
    if source.suffix.lower() not in extensions():
        return f"its source {source} is not named like an image"
    return ""


def _take_back(source: Path, target: Path, how: str, roots: Collection[Path]) -> str:
    """Undo one item; the reason if the file has to stay."""
    if target.parent.is_symlink():
        return "its folder is a link"
    if not os.path.lexists(target):
        return ""
    if how == "move" and not os.path.lexists(source):
        return _return(source, target, roots)
    if how != "symlink" and not source.exists():
        return f"it is the only one: {source} is gone"
    if not is_ours(source, target, how):
        return f"it is no longer the same as {source}"
    target.unlink()
    return ""


def _return(source: Path, target: Path, roots: Collection[Path]) -> str:
    """Move an image back; never through a link that leads elsewhere."""
    if target.is_symlink() or not target.is_file():
        return "it is not the file that was moved"
    real = source.parent.resolve()
    if not any(real.is_relative_to(root.resolve()) for root in roots):
        return f"{source.parent} leads out of {', '.join(map(str, roots))}"
    source.parent.mkdir(parents=True, exist_ok=True)
    move(target, source)
    return ""


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            (folder / PART).unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()
