"""The experiment on learning per rollout: ways of spending a budget of sampled tokens, side by side."""
