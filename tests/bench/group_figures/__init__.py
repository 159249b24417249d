"""`make bench-groups`: what groups cost and how soon they move; writes a block into docs/BENCHMARKS.md."""
