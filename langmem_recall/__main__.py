"""`python -m langmem_recall` is the command line."""

from langmem_recall.cli import main

if __name__ == "__main__":
    main()
