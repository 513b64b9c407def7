"""Have the answers become worse? Prompt sets, contracts, log-probabilities, paired statistics, verdict."""
