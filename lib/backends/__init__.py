"""Where models are trained and sampled: objects of `tinker.ServiceClient`'s shape, exchangeable by one parameter."""

from contextvars import ContextVar

# Names the rollout that the current task is playing. The local sampler derives its draws from it, so that a rollout's
# answers depend neither on the order in which requests arrive nor on who else is being served. An environment sets it
# in each rollout's own task; where nobody does, the sampler counts how often a prompt was asked instead.
rollout_key: ContextVar[str | None] = ContextVar("rollout_key", default=None)
