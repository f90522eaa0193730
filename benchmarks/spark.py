"""Spark: reads compared to its own Parquet reader, the sink to one that drops rows, streaming."""

from __future__ import annotations

from benchmarks import servers, spark_reads, spark_sink, spark_streaming
from benchmarks.scale import Scale
from benchmarks.stream_rates import BOUNDS
from fjord.spark import session

ROWS = 5_000_000


def run(scale: Scale) -> None:
    rows = max(10_000, scale.of(ROWS) // 10_000 * 10_000)
    spark = session(**{"spark.master": "local[2]"})
    try:
        with servers.data_directory() as directory, servers.Daemon(directory, **BOUNDS) as daemon:
            spark_reads.fill(daemon.url, rows)
            spark_streaming.ingesting(spark, daemon.url, rows, "from the journal")
            spark_reads.reading(spark, daemon.url, rows)
            spark_streaming.ingesting(spark, daemon.url, rows, "from cold blocks")
        with servers.data_directory() as directory, servers.Daemon(directory) as daemon:
            spark_sink.writing(spark, daemon.url, rows)
            spark_streaming.idling(spark, daemon.url)
            spark_streaming.latency(spark, daemon.url, scale.of(40))
    finally:
        spark.stop()
