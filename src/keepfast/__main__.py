"""`python -m keepfast` is `keepfast`."""

import sys

from keepfast.cli import main

if __name__ == "__main__":
    sys.exit(main())
