"""`strandline demo`: the main job on real input, with real processes and a verdict."""
