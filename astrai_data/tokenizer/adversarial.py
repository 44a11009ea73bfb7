"""Strings on which tokenizer libraries have been seen to differ: white space, marks, digits, scripts, borders."""

import numpy as np

_UNITS = [
    "hello world", " ", "  ", "\t", "\n", "\r\n", "\r", "\n\n\n", "   \n  x", "a  b   c    d", "\u00a0", "\u2028x",
    "\u200b", "\ufeff", "\x00", "\x7f", "\u0085",
    "1", "12345678901234567890", "3.14159e-10", "1,000,000", "\u0663\u0664\u0665", "\u00bd\u00b2",
    "don't I'LL we've it's 'S \u017f'\u017f", "CamelCaseHTTPServer", "snake_case__x", "!!!???...---===",
    "(){}[]<>", "@#$%^&*", "http://example.org/a?b=c&d=e#f", "for (int i = 0; i < n; ++i) {\n\t\tx[i] += 1;\n}",
    "e\u0301 \u00e9", "\u1e9b\u0323", "\u00c5\u212b",
    "\ud55c\uae00 \u1112\u1161\u11ab", "\u65e5\u672c\u8a9e\u306e\u30c6", "\u0e44\u0e17\u0e22",
    "\u0627\u0644\u0639\u0631\u0628", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u05e9\u05dc\u05d5\u05dd",
    "\u041f\u0440\u0438\u0432\u0435\u0442", "\u0130\u0131\u017f\u00df",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308\U0001f1e9\U0001f1ea",
    "\ud7ff\ue000", "\ufffd\uffff", "\U0001f600\U0010ffff", "<|", "|>", "<", "</s", "\u2581 \u2581\u2581",
]  # fmt: skip
_RUNS = ["a", " ", "\n", "1", "=", "\u00e9", "\u6f22", "ab", "\U0001f642", "\r\n", " x"]
_RUN_LETTERS = 2_000
_NUM_MIXED = 256
_NUM_ADDED = 32
_FULL_WIDTH = {point: point + 0xFEE0 for point in range(0x21, 0x7F)}


def adversarial_texts(added: list[str]) -> list[str]:
    """The same strings every time: alone, around and near the `added` tokens of a vocabulary, in long runs, mixed."""
    some = added[:_NUM_ADDED]
    around = [f"{a}{token}{b}" for token in some for a, b in (("", ""), ("a", "b"), (" ", " "), ("\n", "\n"))]
    folded = [form for token in some for form in (token.upper(), token.lower(), token.translate(_FULL_WIDTH))]
    broken = [token[:cut] for token in some for cut in (1, -1)]
    random = np.random.default_rng(0)
    pool = np.array([*_UNITS, *some], object)
    mixed = ["".join(random.choice(pool, size)) for size in random.integers(1, 24, _NUM_MIXED)]
    runs = [(unit * _RUN_LETTERS)[:_RUN_LETTERS] for unit in _RUNS]
    return ["", *_UNITS, *around, *folded, *broken, *runs, *mixed, "".join(added)]
