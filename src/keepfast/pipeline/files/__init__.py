"""Where the bytes are: places, listings, other file systems, and the parts that tasks read.

What may live here: everything that finds or opens a file that is read. What may not: what its bytes
mean, and anything that writes into a directory that is read.
"""
