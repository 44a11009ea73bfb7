"""What the kernels would do on this machine, and why: for `astrai kernels info` and `astrai doctor`."""

import torch

from astrai_kernels import build, dispatch, native
from astrai_kernels.errors import KernelError
from astrai_kernels.recipe import make_recipe


def report() -> dict:
    """One JSON-ready object; starts no build.

    Keys: `requested` (argument of ASTRAI_KERNELS or `auto`), `backend` (`cpu` or `torch`, for what a CPU kernel can
    take), `reason`, `library` (None: no recipe), `compiler`, `flags`, `torch`, `capability`, `threads`.
    """
    facts = {
        "requested": None,
        "backend": "torch",
        "reason": "",
        "library": None,
        "compiler": None,
        "flags": [],
        "torch": torch.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }
    try:
        facts["requested"] = dispatch.requested()
        recipe = make_recipe()
    except KernelError as error:
        return facts | {"reason": str(error)}
    found = native.status(recipe)
    chosen = "cpu" if found.loaded and facts["requested"] != "torch" else "torch"
    reason = "asked for" if facts["requested"] == "torch" else found.reason
    library = build.library_path(recipe)
    return facts | {
        "backend": chosen,
        "reason": reason,
        "library": str(library),
        "compiler": recipe.compiler_version,
        "flags": [flag for flag in recipe.compile_flags if not flag.startswith("-I")],
    }
