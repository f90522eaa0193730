"""The materialised view `report`: what came in each hour."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

spark = SparkSession.active()


@dp.materialized_view(comment="Rows, keys, bytes and a checksum of each hour and kind of row")
def report() -> DataFrame:
    return (
        spark.read.table(spark.conf.get("spark.fjord.dataset") or "")
        .groupBy(F.date_trunc("hour", "ts").alias("hour"), "op")
        .agg(
            F.count("*").alias("rows"),
            F.countDistinct("key").alias("keys"),
            F.sum(F.octet_length("value")).alias("bytes"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            # The same sum that Fjord keeps of its cold blocks: both copies can be compared.
            F.sum(F.crc32("value")).alias("value_crc"),
        )
    )
