"""One page that shows what happened: incidents as lanes, the statistics, and how each figure was computed."""
