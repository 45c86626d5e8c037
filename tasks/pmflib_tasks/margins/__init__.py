"""The stage that rakes samples to known margins."""
