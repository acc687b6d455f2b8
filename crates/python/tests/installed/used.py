"""The installed package, by itself: it reads a tree, and has what type checkers look for."""

import sys
from importlib.metadata import files as installed_files
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import onesweep

root = Path(sys.argv[1])
assert not Path(onesweep.__file__).is_relative_to(Path(__file__).parents[2]), onesweep.__file__
read = {f.path: bytes(f.data) for f in onesweep.read(root, budget="8M")}
assert read == {str(path): path.read_bytes() for path in root.iterdir()}
assert {entry.path for entry in onesweep.walk(root)} == set(read) and onesweep.plan(root).estimate
package = files("onesweep")
for name in ["py.typed", "_onesweep.pyi", "__init__.py"]:
    assert package.joinpath(name).is_file(), name
stubs = package.joinpath("_onesweep.pyi").read_text()
assert all(f"def {name}(" in stubs for name in ["read", "walk", "plan", "du"])
assert version("onesweep")
licences = {path.name: path.read_text() for path in installed_files("onesweep") or [] if path.name.startswith("LICENSE-")}
assert {"LICENSE-MIT", "LICENSE-APACHE"} <= set(licences) and "Permission is hereby granted" in licences["LICENSE-MIT"], list(licences)
if "--with-crates" in sys.argv:
    assert "pyo3" in licences["LICENSE-CRATES"] and "Permission is hereby granted" in licences["LICENSE-CRATES"]
