"""The streaming table, which is named after the table: each row of its history, exactly once.

Each run appends what is new since the last one.  How far it has come is in Spark's checkpoint,
below `storage`; a run that dies is repeated with the same rows by the next one.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

if spark.conf.get("spark.sql.catalogImplementation") != "hive":
    raise SystemExit(
        "datasets would be forgotten after this run; start it with ./run, see README.md"
    )


def setting(name: str) -> str:
    """Returns a setting of spark-pipeline.yml, empty if it is not there."""
    return spark.conf.get(f"spark.fjord.{name}", "") or ""


@dp.table(name=setting("dataset"), comment="Each row of the history, once, in Fjord's own columns")
def history() -> DataFrame:
    place = "server" if setting("server") else "path"
    return (
        spark.readStream.format("fjord")
        .option(place, setting(place))
        .option("table", setting("table"))
        .option("maxRowsPerTrigger", setting("rows"))
        .option("columns", "plain")
        .load()
    )
