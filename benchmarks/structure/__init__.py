"""How the library is made: what takes part in simple things."""
