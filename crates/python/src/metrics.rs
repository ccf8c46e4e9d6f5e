//! Counts of an engine as plain numbers.

use demask::Handle;
use serde_json::{Value, json};

/// Returns the counts as they were after the last forward; nothing is waited for.
pub fn metrics(handle: &Handle) -> Value {
    let (counters, heartbeat) = (handle.counters(), handle.heartbeat());
    let totals = &counters.totals;
    let networks: Vec<Value> = counters
        .networks
        .iter()
        .map(|network| {
            json!({
                "forwards": network.forwards,
                "groups": network.groups,
                "rows": network.rows,
                "seconds": network.time.as_secs_f64(),
                "open": network.open,
                "pages_used": network.pages.used,
                "pages_free": network.pages.free,
                "pages_idle": network.pages.idle,
                "page_capacity": network.page_capacity,
            })
        })
        .collect();
    json!({
        "running": totals.running,
        "waiting": totals.waiting,
        "waiting_rows": totals.waiting_rows,
        "done": totals.done,
        "failed": totals.failed,
        "cancelled": totals.cancelled,
        "refused": totals.refused,
        "expired": totals.expired,
        "forwards": totals.forwards,
        "leaks": totals.leaks,
        "open_requests": counters.totals.running + counters.totals.waiting,
        "networks": networks,
        "alive": heartbeat.alive,
        "busy": heartbeat.busy,
        "since_beat_seconds": heartbeat.since.as_secs_f64(),
    })
}
