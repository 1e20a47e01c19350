"""Bytes with something wrong in them."""

BYTES = (b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff", b"null", b"{}", b"[]", b'"', b"-1", b"1e999")


def damaged(data, rng):
    """The bytes with a few flipped, cut out, doubled or replaced."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at, length = rng.randrange(len(data) or 1), rng.randrange(1, 40)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length]
            case 3:
                data[at : at + 4] = rng.choice(BYTES)
            case 4 if rng.random() < 0.2:
                del data[at:]
    return bytes(data)
