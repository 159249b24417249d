"""The jobs: answer a question at once, write closed hours for good, report coverage."""
