"""The front door with the commands of serving mounted, whether or not it mounts them itself."""

import astrai

COMMANDS = {
    "serve": ("astrai_serve.cli", "serve", "Answer over HTTP."),
    "generate": ("astrai_serve.cli", "generate", "Answer one prompt."),
}


def main() -> None:
    for name, command in COMMANDS.items():
        astrai.COMMANDS.setdefault(name, command)
    astrai.main()


if __name__ == "__main__":
    main()
