"""Every flow as a generator of effects, and the two drivers that carry effects out."""
