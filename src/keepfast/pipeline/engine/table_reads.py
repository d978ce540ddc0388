"""Tables as data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from keepfast.pipeline.engine.source_files import listing_text
from keepfast.pipeline.engine.sources import register
from keepfast.pipeline.engine.tables import TABLES
from keepfast.pipeline.files.layout import discover
from keepfast.pipeline.files.staging import Staging
from keepfast.pipeline.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession,
    name: str,
    places: list[str],
    columns: list[str] | None = None,
    staging: Staging | None = None,
) -> DataFrame:
    """The rows of a table ("zktxnlog", ...) with these columns; nothing else is decoded.

    Places are listed here, so that any file system works that Spark knows; through `staging` what
    has to be copied for that is copied once for several tables.
    """
    register(spark)
    schema = spark_schema(TABLES[name].schema)
    staging = staging or Staging(spark)
    listing = listing_text(discover(places, staging.list_any))
    reader = spark.read.format(name).option("listing", listing)
    if columns is not None:
        reader = reader.schema(StructType([schema[column] for column in columns]))
    return staging.named_rows(reader.load())
