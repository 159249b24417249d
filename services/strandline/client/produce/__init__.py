"""How records get from `send` to the leader of their partition."""
