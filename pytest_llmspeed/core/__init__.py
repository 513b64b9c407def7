"""Pure, frozen data and the functions on it: metrics, budgets, the decision, baselines."""
