"""The continuous audit: new bytes are read, and what they change is said.

What may live here: what is kept from one look to the next, and when something is reported. What may
not: a second way to decode, to replay or to judge; those are the audit's.
"""
