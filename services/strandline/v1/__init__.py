"""The contract as generated from protos/strandline/v1; nothing in here but this file is written by hand."""
