"""Spark: the session, the Java below it, the data sources, the jobs, and the audit as stages.

What may live here: how work is spread and run. What may not: what the work finds.
"""
