//! A canvas that is drawn forward by forward at a pace that eyes can follow, however fast the forwards are.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use demask::{Event, trace::TokenTexts};

use super::Player;
use crate::interrupt;

/// Longest time between two looks at the user's wish to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Draws forwards in place at their pace; elsewhere each gets its line at once.
pub struct Film {
    player: Player,
    /// Events that are not drawn yet.
    waiting: VecDeque<Event>,
    /// Time between two forwards.
    pause: Duration,
    drawn: Option<Instant>,
    is_wiped: bool,
}

impl Film {
    /// Creates a film of `speed` forwards a second at most. `is_wiped` sets whether the canvas goes at the end.
    pub fn new(player: Player, speed: f64, is_wiped: bool) -> Self {
        let pause = pause(speed);
        Self { player, waiting: VecDeque::new(), pause, drawn: None, is_wiped }
    }

    /// Takes an event of a session, and draws waiting events once the pause is over.
    pub fn take(&mut self, event: &Event, texts: &TokenTexts) -> anyhow::Result<()> {
        if !self.player.is_animated() {
            return Ok(self.player.event(event, texts)?);
        }
        if matches!(event, Event::Commit { .. } | Event::Replace { .. } | Event::Step { .. }) {
            self.waiting.push_back(event.clone());
        }
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= self.pause) {
            self.draw(texts)?;
        }
        Ok(())
    }

    /// Draws the rest at its pace. An interruption ends it.
    pub fn finish(&mut self, texts: &TokenTexts) -> anyhow::Result<()> {
        while !self.waiting.is_empty() && self.wait() {
            if !self.draw(texts)? {
                self.waiting.clear();
            }
        }
        if self.is_wiped && self.player.is_animated() && self.wait() {
            self.player.wipe()?;
        }
        Ok(())
    }

    /// Draws the next forward, if all of its events are there.
    fn draw(&mut self, texts: &TokenTexts) -> anyhow::Result<bool> {
        let Some(end) = self.waiting.iter().position(|event| matches!(event, Event::Step { .. })) else {
            return Ok(false);
        };
        for event in self.waiting.drain(..=end) {
            self.player.event(&event, texts)?;
        }
        self.drawn = Some(Instant::now());
        Ok(true)
    }

    /// Waits until the next forward is due, and returns whether the user still looks.
    fn wait(&self) -> bool {
        loop {
            let passed = self.drawn.map_or(self.pause, |drawn| drawn.elapsed());
            if interrupt::requested() || passed >= self.pause {
                return !interrupt::requested();
            }
            thread::sleep(self.pause.saturating_sub(passed).min(LOOK));
        }
    }
}

/// Time between two forwards at this speed, in forwards a second.
pub fn pause(speed: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / speed).unwrap_or(Duration::MAX)
}
