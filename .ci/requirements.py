"""Prints what pyproject.toml requires to build, run and test, one requirement a line.

`pip install --no-build-isolation --no-deps .` leaves all of it out: with isolation, pip would
install ExecuTorch twice.
"""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

pyproject = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
project = pyproject["project"]
for requirements in (
    pyproject["build-system"]["requires"],
    project["dependencies"],
    project["optional-dependencies"]["test"],
    project["optional-dependencies"]["examples"],
):
    print(*requirements, sep="\n")
