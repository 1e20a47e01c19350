"""Where pixels are: decode one file to RGB, check many files, open an image by its row.

Only a few formats are opened, all by decoders inside the process: Pillow would otherwise start
Ghostscript for EPS. Work and memory are bounded, because files may come from anybody.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import importlib.util
import os
import stat
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from bacon_gcd.config import UserError, one_line
from bacon_gcd.system.progress import progress

IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
HEIF_EXTENSIONS = frozenset({".heic", ".heif", ".hif"})  # photographs of telephones
HEIF_EXTRA = "bacon-gcd[heif]"
MAX_PIXELS = 89_478_485  # where Pillow begins to warn of bombs; an image here is 268 MB as RGB
LARGE_PIXELS = 16_000_000  # larger images are decoded one at a time, whatever the threads
MAX_SCANNED = 25 * MAX_PIXELS  # pixels times scans of a progressive JPEG: some seconds of work
MAX_FILE_BYTES = 2**30
STRIP_ROWS = 256  # rows that are converted at a time where the conversion needs much memory
FILES_PER_TASK = 16
MISSING = "missing file"

# EXIF orientation (tag 0x0112) -> what makes the image upright; 1 and anything else: nothing.
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableError(Exception):
    """An image that cannot be used; the message is the reason shown to the person."""


class Box(NamedTuple):
    """A crop in pixels of the upright image, as annotation tools show it."""

    x: int
    y: int
    width: int
    height: int

    def fits(self, size: tuple[int, int]) -> bool:
        """Whether the box has pixels and all of them are inside an image of (width, height)."""
        inside = self.x + self.width <= size[0] and self.y + self.height <= size[1]
        return min(self.x, self.y) >= 0 and min(self.width, self.height) >= 1 and inside

    def cut(self, image: Image.Image) -> Image.Image:
        """The part of the image inside the box."""
        return image.crop((self.x, self.y, self.x + self.width, self.y + self.height))


@functools.cache
def heif_problem() -> str:
    """Why HEIC and HEIF files cannot be read here, and what to do; empty where they can."""
    if importlib.util.find_spec("pillow_heif") is None:
        return f"pip install '{HEIF_EXTRA}' reads them"
    try:
        import pillow_heif

        pillow_heif.register_heif_opener()
    except Exception as error:  # a broken library raises nearly anything, and must not end the run
        return f"not read: pillow_heif is installed, but does not load: {one_line(error)}"
    return ""


@functools.cache
def formats() -> tuple[str, ...]:
    """The formats that can be decoded here."""
    return FORMATS if heif_problem() else (*FORMATS, "HEIF")


def decode(file: BinaryIO) -> Image.Image:
    """The first frame, whole, upright and as RGB."""
    with Image.open(file, formats=formats()) as image:
        n_pixels = image.width * image.height
        if n_pixels > MAX_PIXELS:
            raise Image.DecompressionBombError
        _check_scans(image, file)
        with _large_images_alone(n_pixels):
            image.load()  # every pixel: verify() lets truncated files pass
            turn = TURNS.get(_orientation(image))  # after load(): PNG keeps it behind the pixels
            rgb = to_rgb(image)
    return rgb if turn is None else rgb.transpose(turn)


def _check_scans(image: Image.Image, file: BinaryIO) -> None:
    """Refuse a progressive JPEG whose many scans would each go over every pixel."""
    if image.format != "JPEG" or not image.info.get("progressive"):
        return
    position = file.tell()
    file.seek(0)
    n_scans = file.read().count(b"\xff\xda")
    file.seek(position)
    if n_scans * image.width * image.height > MAX_SCANNED:
        raise UnreadableError(f"a progressive JPEG of {n_scans} scans, too many for its size")


_one_large_image = threading.Lock()


@contextmanager
def _large_images_alone(n_pixels: int) -> Iterator[None]:
    if n_pixels <= LARGE_PIXELS:
        yield
        return
    with _one_large_image:
        yield


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged EXIF raises nearly anything, and must not cost a sound image
        return 1


def to_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB of any mode; transparency is laid on white, deep values are scaled, not clipped."""
    if image.mode.startswith(("I", "F")):
        return _by_strips(image, _eight_bits(image))
    if image.has_transparency_data:
        return _by_strips(image, _on_white)
    return image.convert("RGB")


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Convert some rows at a time: in one piece it would take several times the image's memory."""
    whole = Image.new("RGB", image.size)
    for top, strip in _strips(image):
        whole.paste(convert(strip), (0, top))
    return whole


def _strips(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The first row of each strip, and the strip."""
    for top in range(0, image.height, STRIP_ROWS):
        yield top, image.crop((0, top, image.width, min(top + STRIP_ROWS, image.height)))


def _on_white(image: Image.Image) -> Image.Image:
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _eight_bits(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """What turns strips of a deep image into RGB."""
    if image.mode.startswith("I;16") or image.format == "PNG":  # older Pillow: 16-bit PNG is "I"
        return lambda strip: _gray(_finite(strip) // 256)
    # 32-bit and float images do not say what white is: the darkest is 0 and the brightest 255.
    low = min(float(_finite(strip).min()) for _, strip in _strips(image))
    high = max(float(_finite(strip).max()) for _, strip in _strips(image))
    scale = 255 / ((high - low) or 1.0)
    return lambda strip: _gray(np.rint((_finite(strip) - low) * scale))


def _finite(image: Image.Image) -> npt.NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)


def _gray(values: npt.NDArray[np.float64]) -> Image.Image:
    return Image.fromarray(values.astype(np.uint8)).convert("RGB")


class Checked(NamedTuple):
    """What a full decode of one file found; `reason` is empty for a sound image."""

    reason: str
    sha256: str = ""
    size: tuple[int, int] = (0, 0)


def check_file(path: Path) -> Checked:
    """Decode the whole file; never raises."""
    try:
        with _open(path) as file:
            size = decode(file).size
            file.seek(0)
            return Checked("", hashlib.file_digest(file, "sha256").hexdigest(), size)
    except Exception as error:  # decoders raise nearly anything on hostile bytes
        return Checked(_reason(path, error))


def check_files(paths: Sequence[Path], *, threads: int | None = None) -> list[Checked]:
    """One `Checked` per path, in order; `threads` defaults to the number of cores."""
    tasks = [paths[i : i + FILES_PER_TASK] for i in range(0, len(paths), FILES_PER_TASK)]
    checked: list[Checked] = []
    Image.init()  # loads the decoders once, before the threads ask for them
    formats()
    with (
        warnings.catch_warnings(),
        progress("checking images", len(paths)) as advance,
        ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool,
    ):
        warnings.simplefilter("ignore")  # what Pillow warns of is either harmless or quarantined
        for done in pool.map(lambda task: [check_file(path) for path in task], tasks):
            checked += done
            advance(len(done))
    return checked


def _open(path: Path) -> BufferedReader:
    status = path.stat()  # before open(), which would wait forever on a pipe
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableError("a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableError("not a regular file")
    if status.st_size == 0:
        raise UnreadableError("zero bytes")
    if status.st_size > MAX_FILE_BYTES:
        raise UnreadableError(f"larger than {MAX_FILE_BYTES / 2**30:.0f} GB")
    return path.open("rb")


def _reason(path: Path, error: Exception) -> str:
    """Why a file cannot be used, without its path: the same on every machine."""
    match error:
        case UnreadableError():
            return str(error)
        case UnidentifiedImageError():
            return f"not an image ({', '.join(formats())})"
        case Image.DecompressionBombError():
            return f"larger than {MAX_PIXELS / 1e6:.0f} megapixels"
        case FileNotFoundError() | NotADirectoryError():
            return "broken link" if path.is_symlink() else MISSING
        case PermissionError():
            return "no permission to read it"
        case OSError(errno=errno.ELOOP):
            return "looping link"
        case OSError() if error.strerror:
            return f"cannot be read: {error.strerror}"
    if "truncated" in str(error).lower():
        return "truncated"
    return f"cannot be decoded: {' '.join(str(error).split()) or type(error).__name__}"


class PixelSource(Protocol):
    """Opens images by row: from files or from arrays."""

    def __len__(self) -> int: ...

    def image(self, row: int) -> Image.Image:
        """RGB image of one row."""
        ...

    def read(self, row: int) -> tuple[Image.Image, str]:
        """The same, and the sha256 of the very bytes it was decoded from."""
        ...

    def take(self, rows: IntArray) -> PixelSource:
        """The same source with these rows only, in this order."""
        ...


@dataclass(frozen=True)
class FileSource:
    """Images in files under one folder: names only, so that workers get it cheaply."""

    root: Path
    files: tuple[str, ...]
    boxes: tuple[Box | None, ...]

    def __len__(self) -> int:
        return len(self.files)

    def image(self, row: int) -> Image.Image:
        """Decode one file and cut its box."""
        return self.read(row)[0]

    def read(self, row: int) -> tuple[Image.Image, str]:
        """The same, and the sha256 of the very bytes it was decoded from."""
        path, box = self.root / self.files[row], self.boxes[row]
        try:
            with _open(path) as file:
                data = file.read()
            image = decode(BytesIO(data))
        except Exception as error:  # sound when it was checked, so it changed during the run
            raise UserError(f"{path} can no longer be used: {_reason(path, error)}") from error
        return image if box is None else box.cut(image), hashlib.sha256(data).hexdigest()

    def take(self, rows: IntArray) -> FileSource:
        """The same source with these rows only, in this order."""
        files = tuple(self.files[row] for row in rows)
        return FileSource(self.root, files, tuple(self.boxes[row] for row in rows))


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Images in memory; `take` shares the pixels."""

    pixels: ByteArray
    """(M, H, W, 3) or (M, H, W)."""
    index: IntArray
    """(N,) which of the M images each row is."""

    def __len__(self) -> int:
        return len(self.index)

    def image(self, row: int) -> Image.Image:
        """One array as an image."""
        return Image.fromarray(self.pixels[self.index[row]]).convert("RGB")

    def read(self, row: int) -> tuple[Image.Image, str]:
        """The same, and the hash of its pixels."""
        pixels = self.pixels[self.index[row]].copy()
        return Image.fromarray(pixels).convert("RGB"), array_hash(pixels)

    def take(self, rows: IntArray) -> ArraySource:
        """The same source with these rows only, in this order."""
        return ArraySource(self.pixels, self.index[rows])


def array_hash(image: ByteArray) -> str:
    """sha256 of the shape and the pixels."""
    return hashlib.sha256(f"{image.shape}".encode() + image.tobytes()).hexdigest()
