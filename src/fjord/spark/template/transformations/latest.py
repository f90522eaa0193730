"""The materialised view `latest`: the newest message of each key."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

spark = SparkSession.active()


@dp.materialized_view(
    comment="The newest message of each key; keys that were deleted are not there"
)
def latest() -> DataFrame:
    newest = F.max_by(F.struct("seq", "ts", "op", "type", "value"), "seq")
    return (
        spark.read.table("events")
        .where("octet_length(key) > 0")
        .groupBy(F.col("key").cast("string").alias("key"))
        .agg(newest.alias("newest"))
        # A row without a type says that the key is gone, too.
        .where("newest.op <> 'DELETE' AND newest.type IS NOT NULL")
        .select("key", "newest.seq", "newest.ts", "newest.type", "newest.value")
    )
