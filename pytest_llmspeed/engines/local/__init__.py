"""Engines that run in this process."""
