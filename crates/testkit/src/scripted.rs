//! Denoisers that follow a script instead of a network.
