"""The history and the state as tables that others read: the change feed, batch and stream.

What may live here: data sources of agreed records, and what writes them. What may not: judgements.
"""
