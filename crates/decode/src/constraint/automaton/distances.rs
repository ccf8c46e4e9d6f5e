//! How far states are from acceptance.

/// Returns the fewest steps from each state to an accepting one, `u32::MAX` where there is no way. A state may have a target
/// several times.
pub(in super::super) fn distances<I: Iterator<Item = u32>>(
    accepting: &[bool],
    targets: impl Fn(usize) -> I,
) -> Vec<u32> {
    let states = accepting.len();
    // The states before each one, state after state.
    let mut starts = vec![0; states + 1];
    for to in (0..states).flat_map(&targets) {
        starts[to as usize + 1] += 1;
    }
    for state in 0..states {
        starts[state + 1] += starts[state];
    }
    let mut place = starts.clone();
    let mut before = vec![0u32; starts[states]];
    for from in 0..states {
        for to in targets(from) {
            before[place[to as usize]] = from as u32;
            place[to as usize] += 1;
        }
    }
    let mut distances: Vec<u32> = accepting.iter().map(|&accepts| if accepts { 0 } else { u32::MAX }).collect();
    let mut queue: Vec<usize> = (0..states).filter(|&state| accepting[state]).collect();
    let mut done = 0;
    while let Some(&state) = queue.get(done) {
        done += 1;
        for from in before[starts[state]..starts[state + 1]].iter().map(|&from| from as usize) {
            if distances[from] == u32::MAX {
                distances[from] = distances[state] + 1;
                queue.push(from);
            }
        }
    }
    distances
}
