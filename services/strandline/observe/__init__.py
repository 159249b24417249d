"""The reports of nodes and controllers about their state. It reads cores and changes nothing in them."""
