//! elementwise
