"""Computes figures live: S1, S8, S10, S15 and S18 by a separate state machine, on Structured Streaming.

`machine.settle` is plain Python: it takes kept state and new events, and returns rows and the state to keep. It shares
no code with the statistics of the batch, which are authoritative; once a window is closed both agree, which tests
verify. It does not correct times by measured clocks, as the batch does (`look_fold`).
"""
