"""`python -m octavo`: the `octavo` command of this very interpreter."""

from octavo.cli import main

if __name__ == "__main__":
    main()
