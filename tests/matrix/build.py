"""``python -m tests.matrix.build`` builds the programs that drive clients of other languages, once, into the cache."""

from tests.matrix.drivers.programs import build

if __name__ == "__main__":
    build()
