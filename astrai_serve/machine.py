"""What the machine below the libraries is: processor, memory, devices, room on disk, and how fast it is.

Rates are measured, not looked up: the best of a few tries, each measurement under a second. They say what one copy
and one product reach now, beside whatever else runs; they are no benchmark of AstrAI.
"""

import os
import platform
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

MIB, GIB = 2**20, 2**30
CACHE_FILES = "/sys/devices/system/cpu/cpu0/cache"
USUAL_CACHE_BYTES = 32 * MIB
COPY_BYTES = (128 * MIB, 512 * MIB)  # least and most; in between, CACHE_FACTOR times the cache
CACHE_FACTOR = 4
MATMUL_SIZES = (256, 8192)
MATMUL_S = 0.01  # a product this long is past the cost of starting it; the next size takes eight times as long
PROBE_S, TRIES_S, LEAST_TRIES = 0.02, 0.2, 3
LITTLE_ROOM_BYTES = 2 * GIB
Modules = dict[str, ModuleType]


@dataclass(frozen=True)
class Fact:
    """One line of the doctor's answer.

    Attributes:
        name: unique in its section.
        value: None: not to be had here; `note` says why.
        unit: of a number.
        note: how it was found out, or what it means.
        advice: what to do about it; empty: nothing.
        needed: whether AstrAI does not work without what is missing.
    """

    name: str
    value: str | float | None
    unit: str = ""
    note: str = ""
    advice: str = ""
    needed: bool = False


def devices(modules: Modules) -> Iterator[Fact]:
    """Processor, memory, and every accelerator that torch can use; without any, why."""
    cores = num_cores()
    yield Fact("cpu", _processor(), note=platform.machine())
    yield Fact("cores", cores, note="that this process may use")
    if hasattr(os, "getloadavg"):
        load = round(os.getloadavg()[0], 1)
        busy = f"{load} processes want {cores} cores: the measured rates are low" if load > cores else ""
        yield Fact("load", load, note="mean of the last minute", advice=busy)
    if psutil := modules.get("psutil"):
        memory = psutil.virtual_memory()
        yield Fact("memory", round(memory.total / GIB, 1), "GiB", f"{memory.available / GIB:.1f} GiB available")
    if torch := modules.get("torch"):
        yield from _accelerators(torch)


def measured(modules: Modules) -> Iterator[Fact]:
    """Memory bandwidth (NumPy) and rate of matrix products (torch) on each device."""
    if numpy := modules.get("numpy"):
        yield _copy_rate(numpy, _available_bytes(modules))
    else:
        yield Fact("memory copy", None, note="not measured: needs numpy")
    torch = modules.get("torch")
    if torch is None:
        yield Fact("matmul", None, note="not measured: needs torch")
        return
    for device in device_names(torch):
        rates = [_matmul_rate(torch, device, dtype) for dtype in ("float32", "bfloat16")]
        yield rates[0]
        yield _with_verdict(device, *rates)


def disks(modules: Modules) -> Iterator[Fact]:
    """Free room where stores, temporary files and compiled kernels go."""
    yield _room("working directory", os.getcwd)
    yield _room("temporary folder", tempfile.gettempdir)
    if "torch" in modules:
        from astrai_kernels.build import cache_folder

        yield _room("kernel cache", cache_folder)
    else:
        yield Fact("kernel cache", None, note="not used without torch")


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_names(torch: ModuleType) -> list[str]:
    """`cpu`, then what torch can compute on besides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an unusable driver warns; `_accelerators` has it in words
        cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "unknown")


def _accelerators(torch: ModuleType) -> Iterator[Fact]:
    names = device_names(torch)[1:]
    for name in names:
        if name == "mps":
            yield Fact(name, "Apple GPU")
            continue
        found = torch.cuda.get_device_properties(name)
        yield Fact(name, found.name, note=f"{found.total_memory / GIB:.1f} GiB, capability {found.major}.{found.minor}")
    if not names:
        yield _no_accelerator(torch)


def _no_accelerator(torch: ModuleType) -> Fact:
    is_there = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None
    built_for = torch.version.cuda or torch.version.hip
    if built_for is None:
        advice = "an NVIDIA driver is here, but this torch computes on the CPU only: install torch for CUDA"
        return Fact("gpu", "none", note=f"torch {torch.__version__} has no CUDA", advice=advice if is_there else "")
    advice = f"an NVIDIA driver is here, but torch (CUDA {built_for}) cannot use it: see what nvidia-smi says"
    return Fact("gpu", "none", note=f"torch is built for {built_for}", advice=advice if is_there else "")


def _available_bytes(modules: Modules) -> int:
    psutil = modules.get("psutil")
    return psutil.virtual_memory().available if psutil else 2 * GIB


def _copy_rate(numpy: ModuleType, available_bytes: int) -> Fact:
    cache_bytes = _cache_bytes()
    num_bytes = min(max(CACHE_FACTOR * cache_bytes, COPY_BYTES[0]), COPY_BYTES[1], available_bytes // 8)
    if num_bytes < 2 * cache_bytes:
        return Fact("memory copy", None, note="not measured: too little memory is free to step out of the caches")
    source = numpy.full(num_bytes, 1, numpy.uint8)  # written, so that every page is there before the clock runs
    target = numpy.full(num_bytes, 0, numpy.uint8)
    best_s, tries = _best_s(lambda: numpy.copyto(target, source), TRIES_S)
    note = f"NumPy, 1 thread, {num_bytes // MIB} MiB buffers, read + write counted, best of {tries}"
    return Fact("memory copy", round(2 * num_bytes / best_s / 1e9, 1), "GB/s", note)


def _cache_bytes() -> int:
    """The largest cache of one core."""
    texts = []
    for file in Path(CACHE_FILES).glob("index*/size"):
        try:
            texts.append(file.read_text().strip())
        except OSError:
            continue
    sizes = [int(text[:-1]) * {"K": 2**10, "M": MIB}[text[-1]] for text in texts if text[-1:] in ("K", "M")]
    return max(sizes, default=USUAL_CACHE_BYTES)


def _matmul_rate(torch: ModuleType, device: str, dtype: str) -> Fact:
    name = f"{dtype} matmul, {device}"
    try:
        size, best_s, tries = _time_matmul(torch, device, getattr(torch, dtype))
    except RuntimeError as error:  # no memory left there, or a dtype that the device lacks
        return Fact(name, None, note=f"not measured: {str(error).splitlines()[0]}")
    how = f"{torch.get_num_threads()} threads" if device == "cpu" else "synchronised"
    if dtype == "float32":
        how += f", precision {torch.get_float32_matmul_precision()}"
    note = f"torch, {size} x {size}, {how}, best of {tries}"
    return Fact(name, round(2 * size**3 / best_s / 1e9, 1), "GFLOP/s", note)


def _time_matmul(torch: ModuleType, device: str, dtype: object) -> tuple[int, float, int]:
    """(rows, seconds, tries) of a square product, doubled until it takes `MATMUL_S`."""
    size, largest = MATMUL_SIZES
    while True:
        a, b = (torch.rand(size, size, dtype=dtype, device=device) for _ in range(2))
        product = torch.empty_like(a)

        def multiply(a=a, b=b, product=product) -> None:
            torch.matmul(a, b, out=product)[0, 0].item()  # reading one number waits for the device

        if size >= largest or _best_s(multiply, PROBE_S)[0] >= MATMUL_S:
            return size, *_best_s(multiply, TRIES_S)
        size *= 2


def _with_verdict(device: str, float32: Fact, bfloat16: Fact) -> Fact:
    """The second fact, with advice where bfloat16 buys nothing."""
    if not float32.value or not bfloat16.value or bfloat16.value >= float32.value:
        return bfloat16
    advice = f"bfloat16 products are slower than float32 on {device} here: compute in float32"
    return Fact(bfloat16.name, bfloat16.value, bfloat16.unit, bfloat16.note, advice)


def _best_s(run: Callable[[], object], budget_s: float) -> tuple[float, int]:
    """(least seconds, tries) of `run` after one that does not count, until the budget ends."""
    run()
    times_s: list[float] = []
    while len(times_s) < LEAST_TRIES or sum(times_s) < budget_s:
        begin = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - begin)
    return min(times_s), len(times_s)


def _room(name: str, find: Callable[[], str | Path]) -> Fact:
    try:
        folder = Path(find())
        standing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(standing).free
    except OSError as error:
        return Fact(name, None, note=f"not to be had: {error.strerror}", advice=f"the {name} cannot be used")
    advice = f"only {free / MIB:,.0f} MiB are free in the {name}" if free < LITTLE_ROOM_BYTES else ""
    if not os.access(standing, os.W_OK):
        advice = f"the {name} cannot be written to"
    return Fact(name, round(free / GIB, 1), "GiB free", str(folder), advice)
