use demask::DtypeChoice;
use demask::{DeviceOptions, Opened};
use demask::{Options, Prompt};

use super::*;

/// The built-in model in f32, and a problem for it.
pub(super) fn demo() -> (ModelByHand, Prompt) {
    let device = DeviceOptions { dtype: DtypeChoice::F32, threads: Some(2), ..DeviceOptions::default() };
    let model = Opened::demo().unwrap().load(&device, &[], &mut |_| true).unwrap().by_hand().unwrap();
    (model, Prompt::user("Ada has 3 pears. Ben gives Ada 4 more. How many pears are there in the end?", None))
}

#[test]
fn decoding_by_hand_is_decoding() {
    let (mut model, prompt) = demo();
    for decoder in ["static", "threshold", "freedave:d=4"] {
        let options = Options { decoder: Some(decoder.parse().unwrap()), gen_length: Some(32), ..Options::default() };
        let answer = model.generate_with(prompt.clone(), &options).unwrap();
        let session = model.session(&prompt, &options).unwrap();
        let (mut forwards, mut ends) = (0, 0);
        let over = decode(&mut model, session, &mut |look| {
            *if look.ran.is_some() { &mut forwards } else { &mut ends } += 1;
            Ok(())
        });
        assert_eq!(
            (over.unwrap().output().tokens, forwards, ends),
            (answer.tokens, answer.receipt.decoding.forwards, 1)
        );
    }
    // Whatever a look says, no sequence stays open.
    let session = model.session(&prompt, &Options::default()).unwrap();
    let refused = decode(&mut model, session, &mut |_| Err(Error::Interrupted));
    assert!(matches!(refused, Err(Error::Interrupted)));
    assert_eq!(model.network().pages().used, 0);
}

#[test]
fn columns_are_aligned() {
    let cells = |row: [&str; 3]| row.map(str::to_owned).to_vec();
    let table = [cells(["a", "long", "c"]), cells(["name", "1", "23"])];
    assert_eq!(columns(&table), "a     long   c\nname     1  23\n");
}
