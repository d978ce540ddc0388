"""Records to trees: states, changes, and every snapshot and digest held against them.

What may live here: whatever applies transactions. What may not: Spark, which `engine` knows.
"""
