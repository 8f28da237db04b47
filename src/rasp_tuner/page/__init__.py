"""Pages of HTML that need nothing else, and the pictures in them."""
