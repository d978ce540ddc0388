"""The same random requests to Apache ZooKeeper 3.9.5 and to Keepfast, and the same answers.

`scripts` makes up what several clients do, by a seed; `sides` does it on a server and notes every
frame that comes back; `normal` takes out of the frames what may differ (times, session ids, the
order inside a set); `campaign` runs both and compares. `make differential` runs it at full scale.
"""
