"""What is run: a question answered at once, closed hours written for good, coverage reported."""
