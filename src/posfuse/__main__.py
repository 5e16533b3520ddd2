"""python -m posfuse COMMAND."""

from posfuse.cli import main

if __name__ == "__main__":
    main()
