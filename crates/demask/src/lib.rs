//! demask
