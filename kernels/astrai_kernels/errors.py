"""What can go wrong with kernels. This package knows only torch, so these stand beside AstrAI's other errors."""


class KernelError(RuntimeError):
    """A kernel that was asked for by name and cannot serve the call."""


class KernelArgumentError(KernelError, ValueError):
    """An argument that no path, compiled or not, can work with. The message begins with the argument's name."""


class BuildError(KernelError):
    """The compiled kernels cannot be built here. The message is the reason, with the compiler's last words."""
