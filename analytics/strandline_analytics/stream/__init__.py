"""The same figures while they happen: S1, S8, S10, S15 and S18 as a state machine of its own, on Structured Streaming.

`machine.settle` is plain Python: what was kept and what came in, rows and what is to be kept out. It shares no code
with the statistics of the batch, which decide; once a window is closed both say the same, and tests hold them to it.
What the batch corrects by measured clocks it leaves as it was reported (`look_fold`).
"""
