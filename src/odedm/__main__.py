"""`python -m odedm` is the `odedm` command."""

from odedm.cli import main

if __name__ == "__main__":
    main()
