//! Something of which there is only so much, divided among keys: none takes all of it, and a part of each waits for its holder.
//!
//! Half of it is divided by weight, and each key's part of that is its own, taken or not. Of the other half any key
//! takes free parts. Where there is one key alone, or none is needed, all is its own.

/// Takers of something, by the number of their key.
#[derive(Debug)]
pub struct Shares {
    whole: usize,
    in_use: usize,
    keys: Vec<Share>,
}

/// The share of a key.
#[derive(Debug, Clone, Copy)]
struct Share {
    /// Part that no other key takes.
    own: usize,
    /// Part that it may take at most.
    most: usize,
    in_use: usize,
}

/// The requested amount is not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Excess over the most that the key may have.
    OfKey(usize),
    /// Excess over the amount that is neither taken nor kept for other keys.
    OfAll(usize),
}

impl Shares {
    /// Divides so much among keys of these weights.
    pub fn new(whole: usize, weights: &[f64]) -> Self {
        let (half, sum) = (whole / 2, weights.iter().sum::<f64>());
        let share = |weight: &f64| {
            let own = (half as f64 * weight / sum) as usize;
            Share { own, most: (half + own).clamp(1, whole.saturating_sub(1).max(1)), in_use: 0 }
        };
        let keys = match weights {
            [] | [_] => vec![Share { own: whole, most: whole, in_use: 0 }],
            weights => weights.iter().map(share).collect(),
        };
        Self { whole, in_use: 0, keys }
    }

    /// Returns how much a key may have at most.
    pub fn most(&self, key: usize) -> usize {
        self.keys.get(key).map_or(0, |share| share.most)
    }

    /// Returns how much is taken.
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Takes more for a key.
    ///
    /// # Errors
    /// If it is not free for it. Then nothing is taken.
    pub fn take(&mut self, key: usize, more: usize) -> Result<(), Missing> {
        let kept =
            |(other, share): (usize, &Share)| if other == key { 0 } else { share.own.saturating_sub(share.in_use) };
        let kept: usize = self.keys.iter().enumerate().map(kept).sum();
        let free = self.whole.saturating_sub(self.in_use).saturating_sub(kept);
        let Some(share) = self.keys.get_mut(key) else { return Err(Missing::OfKey(more)) };
        if share.in_use + more > share.most {
            return Err(Missing::OfKey(share.in_use + more - share.most));
        }
        if more > free {
            return Err(Missing::OfAll(more - free));
        }
        share.in_use += more;
        self.in_use += more;
        Ok(())
    }

    /// Gives back an amount that a key has taken.
    pub fn give_back(&mut self, key: usize, count: usize) {
        if let Some(share) = self.keys.get_mut(key) {
            share.in_use -= count;
            self.in_use -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_takes_all_and_each_finds_its_own() {
        for (whole, weights) in [
            (256, &[1.0, 100.0][..]),
            (256, &[1.0, 1.0]),
            (4, &[1.0, 1.0]),
            (2, &[1.0, 1.0]),
            (256, &[1.0; 10]),
            (10, &[1.0; 1000]),
        ] {
            let mut shares = Shares::new(whole, weights);
            while shares.take(0, 1).is_ok() {}
            assert!((1..whole).contains(&shares.in_use()), "{whole} {}", weights.len());
            // The others take what is left: none of them finds nothing, as far as there is one for each.
            let found = (1..weights.len()).filter(|&key| shares.take(key, 1).is_ok()).count();
            assert!(found >= (weights.len() - 1).min(whole / 4).max(1), "{whole} {}: {found}", weights.len());
        }
    }

    #[test]
    fn what_is_kept_follows_the_weights() {
        let mut shares = Shares::new(256, &[1.0, 100.0]);
        assert_eq!((shares.most(0), shares.most(1)), (129, 254));
        assert_eq!(shares.take(0, 130), Err(Missing::OfKey(1)));
        shares.take(0, 129).unwrap();
        assert_eq!(shares.take(1, 128), Err(Missing::OfAll(1)));
        shares.take(1, 127).unwrap();
        shares.give_back(0, 100);
        assert_eq!(shares.in_use(), 156);
        // One alone has all.
        assert_eq!(Shares::new(256, &[7.0]).most(0), 256);
    }
}
