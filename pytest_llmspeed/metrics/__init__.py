"""Exchanges, samples, summaries, budgets: the arithmetic of latency and throughput. Pure."""
