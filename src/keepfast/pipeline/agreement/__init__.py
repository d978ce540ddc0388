"""Which records are the ensemble's: who votes, what a majority holds, what others skip.

What may live here: the question whether a record was committed. What may not: trees.
"""
