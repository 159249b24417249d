"""The leader role: takes records, serves followers and consumers, answers where its epochs ended."""
