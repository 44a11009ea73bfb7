"""The ledger: balances that close, and what is said when one does not."""

import time

import pytest

from astrai_data.errors import RunError
from astrai_data.ledger import SCHEMA, Ledger


def filled(*entries: tuple) -> Ledger:
    ledger = Ledger()
    for entry in entries:
        ledger.add(*entry)
    return ledger


BALANCED = [
    ("records", "web", "read", 5),
    ("records", "web", "kept", 3),
    ("records", "web", "filtered", 1, "empty_text"),
    ("records", "web", "rejected", 1, "invalid_json"),
    ("tokens", None, "from_text", 9),
    ("tokens", None, "added", 1),
    ("tokens", None, "trained", 8),
    ("tokens", None, "masked", 2, "segment_start"),
]


def test_balanced():
    filled(*BALANCED).check()
    Ledger().check()


@pytest.mark.parametrize("position", range(len(BALANCED)))
def test_one_count_more_is_noticed_and_named(position):
    balance, domain, what, _, *reason = BALANCED[position]
    ledger = filled(*BALANCED)
    ledger.add(balance, domain, what, 1, *reason)
    with pytest.raises(RunError, match=rf"{balance} of domain {domain!r}"):
        ledger.check()


def test_balances_are_kept_apart_by_domain():
    ledger = filled(("records", "a", "read", 1), ("records", "b", "kept", 1))
    with pytest.raises(RunError):
        ledger.check()


def test_unknown_words_are_errors():
    with pytest.raises(KeyError):
        Ledger().add("records", None, "lost", 1)


def test_rows_and_tables_come_back():
    ledger = filled(*BALANCED)
    assert Ledger.from_rows(ledger.to_rows()).to_rows() == ledger.to_rows()
    assert ledger.to_table().schema == SCHEMA
    assert Ledger().to_table().num_rows == 0
    both = Ledger()
    both.merge(ledger)
    both.merge(ledger)
    assert both.total("records", "read") == 10
    assert both.total("records", "rejected", "invalid_json") == 2
    assert both.total("records", "rejected", "other") == 0


def test_many_domains_are_quick():
    ledger = Ledger()
    for number in range(20_000):
        ledger.add("records", f"domain {number}", "read", 1)
        ledger.add("records", f"domain {number}", "kept", 1)
    started = time.perf_counter()
    ledger.check()
    assert time.perf_counter() - started < 1
