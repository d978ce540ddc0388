"""One script a question. Each prints one table with the machine and the commit it was run on.

Figures are ratios of things run side by side in one run; absolute numbers depend on the machine.
"""
