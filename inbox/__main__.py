"""`python -m inbox`: the `inbox` command where its script is not on the path."""

from inbox.cli import main

if __name__ == "__main__":  # a spawned worker imports this module again
    main()
