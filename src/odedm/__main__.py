"""`python -m odedm` is the `odedm` command."""

from odedm.cli.app import main

if __name__ == "__main__":
    main()
