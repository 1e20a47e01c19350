"""A corpus of bad and odd image files, made on the spot: name -> bytes, sound or not.

A sound file must become an image, any other must be set aside with a reason; none may end a run,
take much memory, or start a program.
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image

PIXELS = np.random.default_rng(0).integers(0, 256, (48, 40, 3), np.uint8)
NOISE = Image.fromarray(PIXELS)
SIGNALING = np.full((4, 4), 0x7FA00000, np.uint32).view(np.float32)
SUFFIX = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind, data=b"", *, crc=None):
    """One chunk of a PNG."""
    crc = zlib.crc32(kind + data) if crc is None else crc
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png(*chunks, width=8, height=8, bits=8, color=2, interlace=0):
    """A PNG of these chunks behind its header."""
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks)


ROWS = zlib.compress(b"".join(b"\0" + bytes(24) for _ in range(8)))  # 8 x 8 black pixels
DATA, END = chunk(b"IDAT", ROWS), chunk(b"IEND")


def tiff(*tags, pixels=bytes(64)):
    """A little TIFF: (tag, type, count, value) entries, the pixels behind them."""
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    assert len(head) + len(entries) + 4 == start
    return head + entries + struct.pack("<I", 0) + pixels


def gray_tiff(width=8, height=8, *, offset=None, more=()):
    offset = 8 + 2 + 12 * (8 + len(more)) + 4 if offset is None else offset
    tags = [(256, 3, 1, width), (257, 3, 1, height), (258, 3, 1, 8), (259, 3, 1, 1)]
    tags += [(262, 3, 1, 1), (273, 4, 1, offset), (278, 3, 1, height), (279, 4, 1, 64), *more]
    return tiff(*tags)


def bmp(width=8, height=8, *, bits=24, offset=54, compression=0, data=bytes(8 * 8 * 3)):
    head = struct.pack("<2sIHHI", b"BM", 54 + len(data), 0, 0, offset)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
    return head + info + data


def scans(n_scans):
    """A progressive JPEG whose last scan is there `n_scans` times more."""
    data = encoded(Image.new("RGB", (2000, 2000)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * n_scans + data[-2:]


def sound_images():
    """Name -> bytes of files that are odd and yet images."""
    files = {f"plain.{SUFFIX[kind]}": encoded(NOISE, kind) for kind in SUFFIX}
    modes = ("1", "L", "LA", "P", "RGBA", "I;16")
    for mode in modes:
        image = Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 250) if mode == "I;16" else None
        image = NOISE.convert(mode) if image is None else image
        files[f"mode {mode}.png"] = encoded(image, "PNG")
    files |= {
        "cmyk.jpg": encoded(NOISE.convert("CMYK"), "JPEG"),
        "gray.jpg": encoded(NOISE.convert("L"), "JPEG"),
        "float.tif": encoded(Image.fromarray(PIXELS[..., 0].astype(np.float32)), "TIFF"),
        "nan.tif": encoded(Image.fromarray(np.full((4, 4), np.nan, np.float32)), "TIFF"),
        "signaling nan.tif": encoded(Image.fromarray(SIGNALING), "TIFF"),
        "one pixel.png": encoded(NOISE.crop((0, 0, 1, 1)), "PNG"),
        "one row.png": encoded(Image.new("RGB", (3000, 1)), "PNG"),
        "one column.jpg": encoded(Image.new("RGB", (1, 3000)), "JPEG"),
        "frames.gif": encoded(NOISE, "GIF", save_all=True, append_images=[NOISE] * 3),
        "frames.tif": encoded(NOISE, "TIFF", save_all=True, append_images=[NOISE] * 3),
        "frames.webp": encoded(NOISE, "WEBP", save_all=True, append_images=[NOISE] * 3),
        "progressive.jpg": encoded(NOISE, "JPEG", progressive=True),
        "wrong suffix.png": encoded(NOISE, "JPEG"),
        "upper case.JPG": encoded(NOISE, "JPEG"),
        "turned.jpg": encoded(NOISE, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0" + bytes(6)),
        "exif of nonsense.jpg": encoded(NOISE, "JPEG", exif=b"Exif\0\0" + b"\xff" * 60),
        "bytes behind.jpg": encoded(NOISE, "JPEG") + b"PK\3\4" + bytes(500),
        "bytes behind.png": encoded(NOISE, "PNG") + b"#!/bin/sh\n",
        "transparent.png": encoded(NOISE.convert("RGBA"), "PNG"),
        "lossless.webp": encoded(NOISE, "WEBP", lossless=True),
        "deflated.tif": encoded(NOISE, "TIFF", compression="tiff_adobe_deflate"),
        "top down.bmp": bmp(height=-8),
        "text of nonsense.png": png(chunk(b"tEXt", b"\xff" * 50), DATA, END),
        "wrong checksum.png": png(chunk(b"IDAT", ROWS, crc=1), END),
        "chunk without end.png": png(struct.pack(">I", 2**31 - 1) + b"IDAT" + ROWS),
        "unknown chunk.png": png(chunk(b"abCd", b"x"), DATA, END),
    }
    return files


def bad_images():
    """Name -> bytes of files that are not images, or promise more than they hold."""
    halves = {f"half.{SUFFIX[kind]}": encoded(NOISE, kind) for kind in SUFFIX}
    files = {name: data[: len(data) // 2] for name, data in halves.items()}
    for kind in SUFFIX:
        files[f"head only.{SUFFIX[kind]}"] = encoded(NOISE, kind)[:12]
    files |= {
        "empty.jpg": b"",
        "one byte.png": b"\x89",
        "zeros.jpg": bytes(1000),
        "text.jpg": b"this is not a picture\n" * 50,
        "page.jpg": b"<!doctype html><title>404</title>",
        "drawing.png": b'<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>',
        "program.jpg": b"\x7fELF\2\1\1" + bytes(500),
        "script.png": b"#!/bin/sh\ntouch /tmp/started\n",
        "archive.png": b"PK\3\4" + bytes(500),
        "pickle.jpg": b"\x80\4\x95c__builtin__\nexec\n.",
        "document.jpg": b"%PDF-1.7\n1 0 obj\n",
        "ghostscript.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
        "ghostscript.tif": b"\xc5\xd0\xd3\xc6" + struct.pack("<II", 30, 20) + b"%!PS-Adobe-3.0",
        "windows.bmp": b"\xd7\xcd\xc6\x9a" + bytes(100),
        "icon.png": b"\0\0\1\0\1\0" + bytes(60),
        "jpeg 2000.jpg": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(60),
        "texture.png": b"DDS |\0\0\0" + bytes(120),
        "film.tif": b"\x76\x2f\x31\x01" + bytes(60),
        "drawing in text.bmp": b"/* XPM */\nstatic char *a[] = {};\n",
        "paintbrush.bmp": b"\x0a\5\1\x08" + bytes(124),
        "half of a progressive one.jpg": encoded(NOISE, "JPEG", progressive=True)[:1500],
        "half of some frames.webp": encoded(
            NOISE, "WEBP", save_all=True, append_images=[NOISE.rotate(90)], lossless=True
        )[:900],
        "portable.png": b"P6 8 8 255\n" + bytes(192),
        "photoshop.jpg": b"8BPS\0\1" + bytes(60),
        "fits.tif": b"SIMPLE  =                    T" + b" " * 2850,
        "bomb.png": png(chunk(b"IDAT", zlib.compress(bytes(99))), END, width=60000, height=60000),
        "grenade.png": png(DATA, END, width=10000, height=10000),
        "bomb.bmp": bmp(width=60000, height=60000),
        "bomb.gif": b"GIF89a"
        + struct.pack("<HHBBB", 60000, 60000, 0x80, 0, 0)
        + bytes(6)
        + b"\x3b",
        "bomb.tif": gray_tiff(60000, 60000),
        "slow.jpg": scans(700),
        "no pixels.png": png(DATA, END, width=0),
        "no pixels.bmp": bmp(width=0),
        "no data.png": png(END),
        "too little data.png": png(chunk(b"IDAT", zlib.compress(b"\0" * 30)), END),
        "not compressed.png": png(chunk(b"IDAT", b"x" * 90), END),
        "color of no kind.png": png(DATA, END, color=7),
        "bits of no kind.png": png(DATA, END, bits=5),
        "no frames.gif": b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + b"\x3b",
        "no image data.tif": tiff((256, 3, 1, 8), (257, 3, 1, 8)),
        "pixels outside.tif": gray_tiff(offset=2**31),
        "directory of itself.tif": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
        "compression of no kind.tif": gray_tiff(more=((317, 3, 1, 9), (339, 3, 1, 77))),
        "pixels behind the end.bmp": bmp(offset=10**6),
        "bits of no kind.bmp": bmp(bits=13),
        "compression of no kind.bmp": bmp(compression=99),
        "riff of sound.webp": b"RIFF\x24\0\0\0WAVEfmt " + bytes(40),
        "riff too long.webp": b"RIFF\xff\xff\xff\x7fWEBPVP8 \xff\xff\xff\x7f" + bytes(40),
        "start only.jpg": b"\xff\xd8\xff",
        "two starts.jpg": b"\xff\xd8" * 200,
        "tables of nothing.jpg": b"\xff\xd8\xff\xc4\0\2\xff\xda\0\2\xff\xd9",
        "size of nothing.jpg": b"\xff\xd8\xff\xc0\0\x0b\x08\0\0\0\0\1\1\x11\0\xff\xd9",
    }
    return files


def corpus():
    """Name -> (bytes, whether it is an image)."""
    sound = {name: (data, True) for name, data in sound_images().items()}
    return sound | {name: (data, False) for name, data in bad_images().items()}
