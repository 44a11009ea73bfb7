"""Every error that a user can meet: what, where, got, wanted, try; and each is met.

The table is in the files beside this one, an area each. `test_every_site` reads the source and names the places that
raise an error which no row comes to.
"""

import re
from collections.abc import Iterator

import pytest

from . import configuration, inspection, loaders, models, records, runs, serving, stores, tokenizers, training
from .exceptions import NOT_REACHED
from .place import Place, Stock
from .row import FIELDS, Row
from .sites import Site, find_sites, noted, reached

AREAS = {
    "configuration": configuration,
    "tokenizers": tokenizers,
    "records": records,
    "runs": runs,
    "stores": stores,
    "inspection": inspection,
    "loaders": loaders,
    "models": models,
    "training": training,
    "serving": serving,
}
TABLE = {f"{name}: {row.name}": row for name, area in AREAS.items() for row in area.ROWS}
NO_WORDS_FOR_USERS = re.compile(r"Traceback|object at 0x|<class|pydantic|NoneType: None")
NUM_MENDED = 10


@pytest.fixture(scope="module")
def stock(tmp_path_factory) -> Iterator[Stock]:
    made = Stock(tmp_path_factory.mktemp("stock"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    return find_sites()


@pytest.fixture(scope="module")
def found() -> dict[str, set[Site]]:
    """Name of a row that was run in this process -> the sites that it came to."""
    return {}


@pytest.mark.parametrize("name", TABLE)
def test_a_message(name, stock, sites, found, tmp_path, monkeypatch):
    row, place = TABLE[name], Place(tmp_path, stock)
    monkeypatch.chdir(tmp_path)
    message, found[name] = _run(row, place, sites)
    _check(row, message)
    if row.mend is not None:
        place.screen, place.message = None, message
        row.mend(place)
        row.fail(place)
        assert place.screen is None, f"mended, and still:\n{place.screen}"


def _run(row: Row, place: Place, sites: list[Site]) -> tuple[str, set[Site]]:
    """The message, and the sites that made it."""
    with noted() as made:
        message = _message(row, place)
    assert any(isinstance(one.thing, row.kind) and str(one.thing.what) in message for one in made), message
    here = reached(made, message, sites)
    assert here, f"no site of the source made this:\n{message}"
    return message, here


def _message(row: Row, place: Place) -> str:
    """As the user sees it."""
    try:
        row.fail(place)
    except row.kind as error:
        return str(error)
    assert place.screen is not None, "nothing went wrong"
    return place.screen


def _check(row: Row, message: str) -> None:
    told = [field for field in FIELDS for _ in re.findall(rf"(?:\n  |; ){field}: \S", message)]
    assert told == [field for field in FIELDS if field not in row.without], message
    for words in row.says:
        assert words in message, message
    assert not NO_WORDS_FOR_USERS.search(message), message


def test_ten_messages_are_enough_to_mend_by():
    """The rows with `mend` did what their message says and went through; there are some in every area."""
    mended = [name.split(":")[0] for name, row in TABLE.items() if row.mend]
    assert len(mended) >= NUM_MENDED
    assert set(mended) == AREAS.keys()


def test_every_site(stock, sites, found, tmp_path, monkeypatch):
    """Each is reached by a row, or stands in the list of exceptions with its reason; none does both."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(TABLE.keys() - found.keys()):  # run by another process, or not selected
        (tmp_path / str(number)).mkdir()
        found[name] = _run(TABLE[name], Place(tmp_path / str(number), stock), sites)[1]
    missed = {str(site) for site in set(sites).difference(*found.values())}
    assert missed - NOT_REACHED.keys() == set(), "\n".join(sorted(missed - NOT_REACHED.keys()))
    assert NOT_REACHED.keys() - missed == set(), "these are reached or gone"
