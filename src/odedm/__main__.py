"""The `odedm` command, also as `python -m odedm`."""


def main() -> None:
    """Import the command and run it; an interrupt before it can answer one itself ends it without a traceback."""
    try:
        from odedm.cli.app import main as command

        command()
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
