"""Tries what users install: the wheel, in environments that know nothing of this repository.

`make dist` builds sdist and wheel, and runs this: the wheel's metadata and what both contain are checked, then README's
quick starts and commands run as they stand (only /data is another folder), and then each extra alone.
`python -m tests.distribution WHEEL [EXTRA…]`: those extras only; `quick-starts` stands for README.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")

QUICK_STARTS = "quick-starts"

USES = {
    "s3": "import s3fs",
    "obstore": "import obstore, s3fs",
    "azure": "import adlfs",
    "gcs": "import gcsfs",
    "avro": "import fastavro",
    "serve": "from pravega_spark.serve.application import application",
    "notebooks": "import ipykernel, matplotlib, nbclient, nbformat",
    "docs": "import material, mkdocstrings_handlers.python, nbformat",
    "dev": "import dask.dataframe, duckdb, hypothesis, moto, polars, pytest",
}
"""What each extra is for, as a program that fails without it."""

LIMIT = 900.0
"""Seconds that a program may take."""

PACKAGES = ("chunkstore", "engine", "pravega_spark", "pyspark_pravega")

MOST_BYTES = 3 << 20
"""A wheel, or a source distribution, that is larger has something in it that users do not need."""

_SEAL = """
from pravega_spark import StreamManager
with StreamManager({root!r}) as manager:
    manager.seal_stream("examples", "readings")
"""


class Environment:
    """A new virtual environment in a folder, with the wheel and what it asks for."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "") -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        what = f"{wheel.resolve()}[{extra}]" if extra else str(wheel.resolve())
        self.run("python", "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), what)

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a program of the environment, in its folder."""
        bin = self.folder / "venv" / "bin"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        return subprocess.Popen(
            [str(bin / program), *arguments],
            cwd=self.folder,
            env={**kept, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, *arguments: str) -> str:
        """What a program prints. Raises CalledProcessError if it fails."""
        with self.start(program, *arguments) as process:
            printed, _ = process.communicate(timeout=LIMIT)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, [program, *arguments], printed)
        return printed


def quick_starts(environment: Environment) -> None:
    """Run README's programs and commands, in its order."""
    data = environment.folder / "data"
    data.mkdir()
    page = README.replace("/data/", f"{data}/")
    (spark, python), (sql,) = (
        re.findall(r"```python\n(.*?)```", page, re.S),
        re.findall(r"```sql\n(.*?)```", page, re.S),
    )
    shown = "\n".join(f"spark.sql({each!r}).show()" for each in sql.strip().rstrip(";").split(";\n"))
    found = environment.run("python", "-c", f"{spark}\n{shown}")
    print(found)
    assert len(re.findall(r"^\|segment_id\|", found, re.M)) == 2, "both counts are shown"
    _follow(environment, python, f"{data}/streams")
    for line in re.findall(r"^    pravega-spark (.*?) +#", page, re.M):
        print(f"pravega-spark {line}", flush=True)
        endless = {"tail", "serve"} & set(line.split())
        print(_beginning(environment, line.split()) if endless else environment.run("pravega-spark", *line.split()))


def _follow(environment: Environment, program: str, root: str) -> None:
    """Run a program that follows a stream to its end, and end the stream once it has followed."""
    with environment.start("python", "-uc", program) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline()]  # the event read; that followed is behind the tail of then
        threading.Timer(5, lambda: environment.run("python", "-c", _SEAL.format(root=root))).start()
        seen += process.stdout.readlines()
    assert process.returncode == 0 and "21.5" in seen[0], seen
    print("".join(seen))


def _beginning(environment: Environment, arguments: list[str]) -> str:
    """The first line of a command that does not end by itself, which is ended then."""
    with environment.start("pravega-spark", *arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert line, f"pravega-spark {' '.join(arguments)} printed nothing"
    return line


def extras() -> list[str]:
    """The names of all extras."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return list(setup["options.extras_require"])


def check_metadata(wheel: Path) -> None:
    """Raise ExceptionGroup for metadata that a package index would not take."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (each for each in packed.namelist() if each.endswith(".dist-info/METADATA"))
        Metadata.from_email(packed.read(name), validate=True)


def check_contents(wheel: Path) -> None:
    """Raise AssertionError unless a wheel, and the source distribution beside it, have what they should and no more."""
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    folders = {name.partition("/")[0] for name in names}
    (described,) = (name for name in folders if name.endswith(".dist-info"))
    assert folders == {*PACKAGES, described}, folders
    assert f"{described}/licenses/LICENSE" in names
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    for source in wheel.parent.glob("*.tar.gz"):
        with tarfile.open(source) as packed:
            names = [name.partition("/")[2] for name in packed.getnames()]
        assert {"LICENSE", "README.md", "CHANGELOG.md", "setup.cfg", "pyproject.toml"} <= set(names), names
        assert not [name for name in names if name.startswith(("tests", "docs", "notebooks"))], source
    for file in wheel.parent.iterdir():
        assert file.stat().st_size < MOST_BYTES, f"{file} has {file.stat().st_size} bytes"


def main(wheel: Path, parts: list[str]) -> None:
    """Try these parts, or all of them."""
    check_metadata(wheel)
    check_contents(wheel)
    for part in parts or [QUICK_STARTS, *extras()]:
        print(f"== {part}", flush=True)
        with tempfile.TemporaryDirectory(prefix="pravega-dist-") as folder:
            if part == QUICK_STARTS:
                quick_starts(Environment(Path(folder), wheel, "serve"))
                continue
            environment = Environment(Path(folder), wheel, part)
            environment.run("python", "-c", f"import pravega_spark\n{USES[part]}")
            print(environment.run("pravega-spark", "--version"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
