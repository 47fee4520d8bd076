"""`python -m pumphouse` is the command `pumphouse`."""

from pumphouse.cli import main

if __name__ == "__main__":
    main()
