"""Java clients against Keepfast: Apache's own client and shell, and Curator's recipes."""
