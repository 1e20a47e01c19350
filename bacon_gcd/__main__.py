"""`python -m bacon_gcd` is the `bacon` command."""

from bacon_gcd.cli import main

if __name__ == "__main__":
    main()
