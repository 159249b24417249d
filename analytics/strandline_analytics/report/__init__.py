"""One page that tells what happened: incidents as lanes, the statistics, and how each figure was computed."""
