"""EM of continuous traits: people who differ by degree."""
