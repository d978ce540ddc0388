"""Which records are the ensemble's: who votes, what a majority holds, what others went on without.

What may live here: the question whether a record was committed. What may not: trees.
"""
