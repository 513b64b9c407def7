"""Workloads, arrival plans, and the processes that send them."""
