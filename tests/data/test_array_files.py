"""Arrays of others: lying headers, objects, encrypted and huge archives are one line."""

import io
import pickle
import struct
import zipfile

import numpy as np
import pytest

from bacon_gcd.config import UserError
from bacon_gcd.data import array_files
from bacon_gcd.data.array_files import read_npy, read_npz


def npy(array=None, **changes):
    """Bytes of a .npy file; changes of its header are lies."""
    array = np.arange(6, dtype=np.float32) if array is None else array
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | changes
    text = repr(header).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()


DAMAGED = {
    "empty": b"",
    "text": b"not an array",
    "cut": npy()[:-1],
    "large shape": npy(shape=(10**15,)),
    "negative shape": npy(shape=(-5,)),
    "no shape": npy(shape="x"),
    "objects": npy(descr="|O"),
    "unknown type": npy(descr="zz"),
    "nesting": b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000,
    "version": b"\x93NUMPY\x09\x00" + bytes(100),
    "pickle": pickle.dumps([1, 2]),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_array_is_one_line(tmp_path, data, mapped):
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"a.npy: not a file of one plain array") as caught:
        read_npy(path, mapped=mapped)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_array_in_an_archive_is_one_line(tmp_path, data):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", data)
    with pytest.raises(UserError, match=r"a.npz: not a file of plain arrays") as caught:
        read_npz(path, ["images"])
    assert "\n" not in str(caught.value)


def test_sound_arrays_are_read(tmp_path):
    values = np.arange(6).reshape(2, 3)
    np.save(tmp_path / "a.npy", values)
    assert np.array_equal(read_npy(tmp_path / "a.npy"), values)
    assert isinstance(read_npy(tmp_path / "a.npy", mapped=True), np.memmap)
    np.savez(tmp_path / "a.npz", images=values, other=values)
    assert list(read_npz(tmp_path / "a.npz", ["images"])) == ["images"]


def test_more_than_the_memory_of_the_machine_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros(10_000, np.uint8))
    np.save(tmp_path / "a.npy", np.zeros(10_000, np.uint8))
    monkeypatch.setattr(array_files, "memory_bytes", lambda: 5000)
    for read in (
        lambda: read_npz(tmp_path / "a.npz", ["images"]),
        lambda: read_npy(tmp_path / "a.npy"),
    ):
        with pytest.raises(UserError, match=r"0.0 GB of arrays; this machine has 0.0 GB"):
            read()


def test_an_encrypted_archive_is_refused(tmp_path):
    file = io.BytesIO()
    np.savez(file, images=np.zeros(3))
    data = bytearray(file.getvalue())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(UserError, match=r"images.npy is encrypted"):
        read_npz(tmp_path / "a.npz", ["images"])
