"""What differs between the versions of Spark that the source runs on, a module for each difference.

The rest of the source is written for the newest API. A version that lacks a part of it gets that part from here, by
what `pyspark` has, not by its number.
"""
