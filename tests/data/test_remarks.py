"""What a person is told about how a folder or a table of labels was read."""

import pytest
from PIL import Image

from bacon_gcd.config import UserError
from bacon_gcd.data.images import read_images


def folder_of(root, *names):
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), (9 * number, 30, 60)).save(root / name)
    return root


def labels_in(folder, *files):
    rows = "".join(f"{name},cat\n" for name in files)
    (folder / "l.csv").write_text(f"file_name,label\n{rows}")
    return folder / "l.csv"


def test_folders_inside_a_class_folder_are_named_with_the_label_of_their_images(tmp_path):
    names = ("birds/tern/1.png", "birds/wren/2.png", "cat/3.png", "dog/_unlabeled/4.png")
    assert read_images(folder_of(tmp_path, *names)).remarks == (
        "folders inside class folders are not classes:"
        " images in birds/tern, birds/wren have the label birds",
    )


def test_of_many_folders_inside_class_folders_the_first_are_named(tmp_path):
    names = [f"{name}/{part}/1.png" for name in ("cat", "dog") for part in "abc"]
    assert read_images(folder_of(tmp_path, *names)).remarks == (
        "folders inside class folders are not classes:"
        " images in cat/a, cat/b, cat/c, 3 more have the labels cat, dog",
    )


def test_a_single_class_folder_that_holds_folders_may_be_one_level_too_high(tmp_path):
    names = ("photos/cat/1.png", "photos/dog/2.png", "loose.png")
    (line,) = read_images(folder_of(tmp_path, *names)).remarks
    assert line.endswith(
        "have the label photos; if they are classes, give the folder photos itself"
    )


def test_classes_inside_splits_are_no_folders_inside_class_folders(tmp_path):
    table = read_images(folder_of(tmp_path, "train/cat/1.png", "test/dog/2.png"))
    assert table.remarks == ("test/, train/ taken for splits; classes are the folders inside",)
    folder_of(tmp_path, "train/cat/young/3.png")
    assert read_images(tmp_path).remarks[1:] == (
        "folders inside class folders are not classes:"
        " images in train/cat/young have the label cat",
    )


def test_a_table_of_labels_says_that_class_folders_are_not_used(tmp_path):
    root = folder_of(tmp_path / "in", "cat/1.png", "dog/old/2.png", "_unlabeled/3.png", "4.png")
    table = read_images(root, labels_in(tmp_path, "4.png"))
    assert (table.labels >= 0).sum() == 1
    assert table.remarks == ("labels of l.csv are used; the names of 2 class folders are not",)


def test_a_table_of_labels_for_images_in_no_class_folder_has_nothing_to_say(tmp_path):
    root = folder_of(tmp_path / "in", "_unlabeled/1.png", "2.png")
    assert read_images(root, labels_in(tmp_path, "2.png")).remarks == ()


def test_a_row_without_a_file_is_not_called_unreadable(tmp_path):
    root = folder_of(tmp_path / "in", "1.png")
    (root / "bad.png").write_bytes(b"no image")
    table = read_images(root, labels_in(tmp_path, "1.png", "gone.png"))
    told = "1 images, 1 with a label; 1 unreadable, 1 label without a file, 0 other files ignored"
    assert table.summary() == told
    assert table.remarks == ("1 row of l.csv names no image: gone.png",)
    assert [each.id for each in table.quarantine] == ["bad.png", "gone.png"]
    table = read_images(labels_in(root, "1.png", "gone.png", "lost.png"))
    assert table.remarks == ("2 rows of l.csv name no image, first: gone.png",)
    assert "; 0 unreadable, 2 labels without a file," in table.summary()


def test_a_table_without_rows_is_one_line_that_names_it(tmp_path):
    with pytest.raises(UserError, match=r"l\.csv: there are no rows in it$"):
        read_images(labels_in(tmp_path))
