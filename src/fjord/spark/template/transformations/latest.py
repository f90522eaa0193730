"""The materialised view `latest`: the newest value of each key."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

spark = SparkSession.active()


@dp.materialized_view(
    comment="The newest value of each key; keys that were deleted or have expired are not there"
)
def latest() -> DataFrame:
    newest = F.max_by(F.struct("seq", "ts", "op", "expires_at", "type", "value"), "seq")
    return (
        spark.read.table(spark.conf.get("spark.fjord.dataset") or "")
        .where("octet_length(key) > 0")
        .groupBy(F.col("key").cast("string").alias("key"))
        .agg(newest.alias("newest"))
        # A row without a type says that the key is gone, too.
        .where("newest.op <> 'DELETE' AND newest.type IS NOT NULL")
        # Nothing is written when a value expires: its date tells, at the time of the run.
        .where("newest.expires_at IS NULL OR newest.expires_at > current_timestamp()")
        .select(
            "key", "newest.seq", "newest.ts", "newest.expires_at", "newest.type", "newest.value"
        )
    )
