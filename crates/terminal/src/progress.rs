//! Bars on standard error, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Screen;

/// Progress of one thing; draws nothing where nobody looks.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// No bar.
    pub fn hidden() -> Self {
        Self(None)
    }

    /// Bytes of something, read or written.
    pub fn bytes(screen: Screen, what: &str) -> Self {
        Self::new(screen, what, "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
    }

    /// Positions of a canvas.
    pub fn positions(screen: Screen, what: &str) -> Self {
        Self::new(screen, what, "{msg} {wide_bar} {pos}/{len} {eta}")
    }

    fn new(screen: Screen, what: &str, template: &str) -> Self {
        if !screen.has_bars() {
            return Self::hidden();
        }
        // Hidden until its length is known: of nothing, it would be drawn full.
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self(Some(bar))
    }

    /// Replaces the bar's message.
    pub fn report(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_owned());
        }
    }

    /// Sets the progress.
    pub fn set(&self, done: u64, total: u64) {
        if let Some(bar) = &self.0 {
            bar.set_length(total);
            bar.set_position(done);
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.tick();
            }
        }
    }

    /// One more.
    pub fn advance(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    /// One less.
    pub fn go_back(&self) {
        if let Some(bar) = &self.0 {
            bar.dec(1);
        }
    }

    /// Wipes the bar away.
    pub fn clear(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
