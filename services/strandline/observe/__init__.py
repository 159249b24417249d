"""What nodes and controller report of their state. It reads cores and changes nothing in them."""
