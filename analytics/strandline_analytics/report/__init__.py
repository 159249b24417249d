"""One page that tells what happened: incidents as lanes, the twenty statistics, and how each figure was computed."""
