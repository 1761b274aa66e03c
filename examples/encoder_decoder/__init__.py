"""A sequence-to-sequence transformer whose decoder reads what its encoder left in an arena."""
