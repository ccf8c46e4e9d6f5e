//! Norms, rotation, attention, head and row selection, one number after the other.
