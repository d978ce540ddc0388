"""The checks A1 to A14: what the facts of all files of an ensemble mean.

What may live here: pure functions from facts to findings.  What may not: Spark, and reading of
files beyond what `replaying` needs to build trees.  Each check has a test on clean data and one on
planted damage.
"""
