//! How requests share an engine: priority, deadline, weight, tenant.

use std::{
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
    time::Instant,
};

/// Scheduling parameters of a request: its priority, deadline, share and tenant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchedulingParams {
    /// Requests of a higher priority enter first. The default is 0.
    pub priority: i32,
    /// Among requests of one priority those with the earliest deadline enter first, those without one last. One that still
    /// waits for memory by then is refused; an answer under way ends with its settled part.
    pub deadline: Option<Instant>,
    /// Share of the rows that a network computes while requests of a tenant compete for it: one of weight 2 is served twice
    /// the rows of one of weight 1. Above 0; the default is 1.
    pub weight: f64,
    /// Tenant that the request is for. Tenants share first, however many requests each of them has.
    pub tenant: Tenant,
}

/// Party for which requests are made, such as the holder of a server's key: rows, and turns to enter, are divided among tenants
/// first, and a tenant's among its requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tenant {
    /// Number that identifies the tenant. The default is 0: all requests are one tenant's.
    pub id: u64,
    /// Share of the rows while tenants compete. Above 0; the default is 1.
    pub weight: f64,
}

impl Default for Tenant {
    fn default() -> Self {
        Self { id: 0, weight: 1.0 }
    }
}

impl Default for SchedulingParams {
    fn default() -> Self {
        Self { priority: 0, deadline: None, weight: 1.0, tenant: Tenant::default() }
    }
}

/// Returns the number of a salt that separates prefixes ([`Prefix::salt`](demask_step::Prefix)): the same as long as this process
/// runs, and nobody outside can tell which texts have the same one. 0 is the number of no salt.
pub fn cache_salt(salt: &str) -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    KEY.hash_one(salt).max(1)
}
