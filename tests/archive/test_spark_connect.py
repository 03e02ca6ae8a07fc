"""Spark through Spark Connect: a server in a process of its own, to which frames and archives go over gRPC."""

import os
import subprocess
import sys

from support.optional import package_or_skip, skip_without_java
from support.trade_histories import many

CODE = """
import sys
import warnings

import pandas as pd
from support.engines import collected, without_warnings

warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)  # settings of the server
from pyspark.sql import SparkSession

settings = {
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": sys.argv[1] + "/warehouse",
    "spark.local.dir": sys.argv[1],
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
}
builder = SparkSession.builder
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__

import loopring_lab as lab

odd = pd.read_pickle(sys.argv[3])
trades = without_warnings(spark.createDataFrame, lab.engine.portable(odd))
for name, ask in {
    "summary": lambda f: lab.fees.summary(f, by=["market", "fill_type"]),
    "over_time": lambda f: lab.fees.over_time(f, "1w", by="side"),
    "breakdown": lambda f: lab.fills.breakdown(f, "1mo"),
}.items():
    found = without_warnings(ask, trades)
    assert "connect" in type(found).__module__
    assert collected(found).equals(collected(ask(odd))), name
archive = lab.Archive(sys.argv[2])
for asked in ({}, {"accounts": [20_001], "since": "2021-12-20T11:34:00.5"}):
    scanned = archive.scan("spark", **asked)
    assert "connect" in type(scanned).__module__
    expected = archive.scan("pyarrow", **asked)
    assert 0 < scanned.count() == len(expected)
    by = ["market", "fill_type"]
    assert collected(lab.fees.summary(scanned, by=by)).equals(collected(lab.fees.summary(expected, by=by)))
spark.stop()
print("the same digits")
"""


def test_spark_connect_gives_the_same_digits(synced, tmp_path):
    for module in ("pyspark", "grpc", "grpc_status", "zstandard"):
        package_or_skip(module)
    skip_without_java()
    (tmp_path / "spark").mkdir()
    many(60).to_pickle(tmp_path / "odd")
    paths = [tmp_path / "spark", synced, tmp_path / "odd"]
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *map(str, paths)],
        env={
            **os.environ,
            "SPARK_TESTING": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.stdout.endswith("the same digits\n"), ran.stderr[-3000:]
