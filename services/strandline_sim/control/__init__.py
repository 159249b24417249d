"""The controllers of a simulated cluster, one or several, and the store that they write to."""
