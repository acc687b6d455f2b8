"""Finds what is in files: the example of docs/python.md, which mypy --strict checks and a test runs."""

import sys

import onesweep


def complain(error: onesweep.Error) -> None:
    print(error, file=sys.stderr)  # the path, what was tried, and why it failed


def main(paths: list[str]) -> int:
    found = 0
    with onesweep.read(paths, budget="64M", onerror=complain) as files:
        for f in files:
            if b"hello" in bytes(f.data[:4096]):
                print(f"{f.path}: {f.stat.st_size} bytes")
                found += 1
    done = files.summary
    print(f"{found} of {done.files} files, {done.errors} failed")
    return 1 if done.errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
