"""Consumer groups (KIP-848): a pure state machine on a coordinator shard.

`machine` is what the shard calls. A request is decided by `heartbeats`, `leaving`, `commits`, `offset_fetches`,
`deletion` or `descriptions`; what a decision writes are the rows of `records`; `group` folds them.
"""
