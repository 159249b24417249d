"""A cluster's day from a seed: exported state events as plausible as they are many, to measure analytics with.

`shape` says how large, `nodes` who was down when, `decisions` what the controller made of it, `looks` what leaders and
followers saw meanwhile, `numbered` gives every row its place in its emitter's sequence and loses some, `written` puts
it all down as the exporter does.
"""
