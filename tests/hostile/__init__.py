"""Malicious and broken clients: the server stays whole and serves the others.

The sizes here are samples; KEEPFAST_HOSTILE=full runs 10,000 connections and 20,000 frames.
"""
