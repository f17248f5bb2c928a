"""The training loop, update rules, checkpoints and logs."""
