"""The deployment kit: every file under deploy/ is what it says, as far as one machine can tell."""
