"""What an audit says: the checks A1 to A14, findings, coverage, verdicts, and their words.

A check takes facts and gives findings; it reads no file and runs no job. Facts are read in `scan`,
records are judged in `agreement`, trees in `replay`.
"""
