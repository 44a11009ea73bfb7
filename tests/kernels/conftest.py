"""The compiled library, built once and kept in build/kernels, so that only the first run after a change compiles."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from astrai_kernels import native
from astrai_kernels.build import VARIABLE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def cache_variable():
    """Where the library is kept, for these tests only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, os.environ.get(VARIABLE, str(ROOT / "build" / "kernels")))
        yield


@pytest.fixture(scope="package")
def compiled(cache_variable):
    """Skips where there is no compiler; with one, a build that fails is a failure."""
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler")
    found = native.require()
    assert found.loaded, found.reason
    return found


@pytest.fixture(autouse=True)
def steady_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
