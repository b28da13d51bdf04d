"""The `odedm` command, also as `python -m odedm`."""


def main() -> None:
    """Import the command and run it; an interrupt meanwhile ends it without a traceback, as one later does."""
    try:
        from odedm.cli.app import main as command
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    command()


if __name__ == "__main__":
    main()
