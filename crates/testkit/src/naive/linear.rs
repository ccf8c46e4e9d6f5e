//! Matrix products, one multiplication after the other.
