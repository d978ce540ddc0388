"""The cheap pass: every byte of every file checked once, and summarised in small rows.

What may live here: what one file says by itself. What may not: anything that needs a second file.
"""
