"""Breaking bytes in the ways in which files break, and in some in which they do not."""

import random

SNIPPETS = [
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b":", b",", b"\0", b"\n", b"\r", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
    *(
        b"null",
        b"true",
        b"1e999",
        b"-",
        b"\\ud800",
        b"\\u0000",
        b"NaN",
        b" " * 40,
        b"9" * 40,
        b"[" * 1200,
        b"<|im_end|>",
    ),
    *(b'"text":', b'"role":', b'"content":', b'"messages":[', b"\xc3", b"/*", b"'", b"\x1f", b"{}{}", b"\xe2\x80\xa8"),
]


def mutate(line: bytes, random_: random.Random) -> bytes:
    """One to three edits: a bit flipped, bytes dropped, doubled, moved, overwritten or put in."""
    for _ in range(random_.randint(1, 3)):
        at, end = sorted(random_.choices(range(len(line) + 1), k=2))
        middle = line[at:end]
        match random_.randrange(7):
            case 0 if middle:
                line = line[:at] + bytes([middle[0] ^ 1 << random_.randrange(8)]) + line[at + 1 :]
            case 1:
                line = line[:at] + line[min(end, at + random_.randint(1, 12)) :]
            case 2:
                line = line[:end] + middle[:20] + line[end:]
            case 3:
                line = line[:at]
            case 4:
                line = line[end:] + middle + line[:at]
            case _:
                line = line[:at] + random_.choice(SNIPPETS) + line[at:]
    return line
