"""Jars of Maven Central that examples need, for the version of Spark that is installed: which ones, and where they lie.

Ivy, which Spark brings along, resolves and downloads each artifact once. The folder of its jars appears complete, by a
rename, so processes of tests may share it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]

FOLDER = "PRAVEGA_JARS"
"""The environment variable that names the folder in which jars are kept, `.jars` of the repository by default."""

NONE_TO_BE_HAD = "PRAVEGA_NO_JARS"
"""The environment variable that turns the failure of a test whose jars cannot be downloaded into a skip."""

DELTA, ICEBERG, AVRO, PROTOBUF = "delta-spark", "iceberg-spark-runtime", "spark-avro", "spark-protobuf"

JARS: dict[str, dict[str, str]] = {
    DELTA: {
        "4.0": "io.delta:delta-spark_4.0_2.13:4.4.0",
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    ICEBERG: {
        "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
    AVRO: {
        "4.0": "org.apache.spark:spark-avro_2.13:4.0.2",
        "4.1": "org.apache.spark:spark-avro_2.13:4.1.1",
        "4.2": "org.apache.spark:spark-avro_2.13:4.2.0",
        "4.3": "org.apache.spark:spark-avro_2.13:4.2.0",  # there is none of 4.3, and that of 4.2 fits
    },
    PROTOBUF: {},  # none was found for Spark 4
}
"""The newest artifact that was found for a minor version of Spark. A version that is left out has none."""

UNKNOWN = {
    DELTA: "io.delta:delta-spark_{spark}_2.13",
    ICEBERG: "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13",
    AVRO: "org.apache.spark:spark-avro_2.13:{spark}",
    PROTOBUF: "org.apache.spark:spark-protobuf_2.13:{spark}",
}
"""What is missing for a version of Spark that `JARS` does not have."""

_PATIENCE = 90.0
"""Seconds that a download may take."""

_failed: set[str] = set()
"""What could not be downloaded: it is not tried again for each test."""

_OF_SPARK = ("org.scala-lang_scala-library-",)
"""What Spark has itself, and leaves out of what it downloads."""


def spark_version() -> str:
    """The minor version of the installed Spark: 4.2."""
    return ".".join(metadata.version("pyspark").split(".")[:2])


def jars(what: str) -> list[Path]:
    """The jars of an artifact and of all that it needs. Skips the test if none is known for the installed Spark."""
    version = spark_version()
    coordinates = JARS[what].get(version)
    if coordinates is None:
        pytest.skip(f"no {UNKNOWN[what].format(spark=version)} is known, so no jar for Spark {version}")
    kept = Path(os.environ.get(FOLDER) or TREE / ".jars")
    kept.mkdir(parents=True, exist_ok=True)
    folder = kept / coordinates.replace(":", "_")
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _download(coordinates, folder)
    return sorted(folder.glob("*.jar"))


def _download(coordinates: str, folder: Path) -> None:
    """Download the jars into the folder, which must not exist."""
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None, "pyspark is not installed"
    [ivy] = (Path(spec.origin).parent / "jars").glob("ivy-*.jar")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    home = os.environ.get("JAVA_HOME")
    command = [f"{home}/bin/java" if home else "java", "-cp", str(ivy), "org.apache.ivy.Main", "-warn"]
    command += ["-cache", str(folder.parent / "cache"), "-dependency", *coordinates.split(":"), "-confs", "default"]
    command += ["-types", "jar", "bundle", "-retrieve", f"{partial}/[organisation]_[artifact]-[revision].[ext]"]
    told = "it was tried before" if coordinates in _failed else _run(command)
    if told is not None:
        _failed.add(coordinates)
        message = f"{coordinates} could not be downloaded from Maven Central. {NONE_TO_BE_HAD}=1 skips such tests."
        if os.environ.get(NONE_TO_BE_HAD):
            pytest.skip(message)
        pytest.fail(f"{message}\n{told}", pytrace=False)
    for name in _OF_SPARK:
        for jar in partial.glob(f"{name}*"):
            jar.unlink()
    partial.rename(folder)


def _run(command: list[str]) -> str | None:
    """What a program says that fails or takes too long; None if it succeeds."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return f"it took more than {_PATIENCE:g} s"
    return done.stdout[-3000:] if done.returncode else None
