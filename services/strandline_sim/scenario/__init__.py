"""Scenario files: the production cores on a virtual clock, message by message, as a transcript that a person can read.

The language is a public interface; `docs/SCENARIOS.md` describes it. The modules:

- `language.py`: the form of a file, and how its expected output is rewritten.
- `stage.py`: the nodes, the controller, the wire between them and the clock; one step at a time.
- `verbs/`: what each verb does, one file for each family.
- `run.py`: a whole file, compared line by line.
"""
