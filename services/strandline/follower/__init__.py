"""The follower role: copies what the leader has, and serves consumers what is committed of it."""
