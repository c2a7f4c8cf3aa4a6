"""What all three services use; it knows none of them."""
