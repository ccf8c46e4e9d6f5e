//! Models that take turns: as many as the memory holds are loaded together, and the others come after them.

/// Loads the models of groups one after the other, and lets those that the memory holds together work. `load` returns nothing for
/// a group that has nothing to do; where `is_full` says of its error that the memory has no room, those that are loaded work
/// first and make room. `work` gets groups by their indices. Returns how many times models made room for others.
///
/// # Errors
/// What `load` and `work` return.
pub fn together<M, E>(
    groups: usize,
    load: &mut dyn FnMut(usize) -> Result<Option<M>, E>,
    is_full: &dyn Fn(&E) -> bool,
    work: &mut dyn FnMut(Vec<(usize, M)>) -> Result<(), E>,
) -> Result<usize, E> {
    let (mut next, mut rounds) = (0, 0);
    while next < groups {
        let mut models = Vec::new();
        while next < groups {
            match load(next) {
                Ok(model) => models.extend(model.map(|model| (next, model))),
                Err(error) if !models.is_empty() && is_full(&error) => break,
                Err(error) => return Err(error),
            }
            next += 1;
        }
        work(models)?;
        rounds += 1;
    }
    Ok(rounds.max(1) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs groups of which the memory holds two at a time; `idle` ones have nothing to do.
    fn rounds(groups: usize, idle: &[usize], fails: Option<usize>) -> (Result<usize, &'static str>, Vec<Vec<usize>>) {
        let (loaded, mut rounds) = (std::cell::Cell::new(0), Vec::new());
        let mut load = |index| match index {
            _ if fails == Some(index) => Err("broken"),
            _ if idle.contains(&index) => Ok(None),
            _ if loaded.get() == 2 => Err("full"),
            _ => {
                loaded.set(loaded.get() + 1);
                Ok(Some(index))
            }
        };
        let mut work = |models: Vec<(usize, usize)>| {
            loaded.set(0);
            rounds.push(models.iter().map(|(index, _)| *index).collect());
            Ok(())
        };
        let made = together(groups, &mut load, &|error| *error == "full", &mut work);
        (made, rounds)
    }

    #[test]
    fn what_the_memory_does_not_hold_comes_later() {
        assert_eq!(rounds(5, &[], None), (Ok(2), vec![vec![0, 1], vec![2, 3], vec![4]]));
        assert_eq!(rounds(3, &[1], None), (Ok(0), vec![vec![0, 2]]));
        assert_eq!(rounds(0, &[], None), (Ok(0), vec![]));
        assert_eq!(rounds(2, &[], Some(1)), (Err("broken"), vec![]));
    }
}
