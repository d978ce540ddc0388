"""Kerberos with a real KDC: clients, servers among each other, and Apache's on the other side."""
