"""DECIDES. Events in, effects out: no clock, no dice, no sockets, no files, no asyncio.

The driving loop, for any program that embeds a core (the services, the simulator, a test)::

    effects = core.step(event)          # pure bookkeeping, returns at once
    for effect in effects:              # the order IS the contract:
        perform(effect)                 # what must be persisted comes before what is answered

Every event carries ``now_ms`` (a monotonic clock that never runs backwards); deadlines come due by ``Ticked``.
"""
