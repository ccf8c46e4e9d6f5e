use super::*;

#[test]
fn a_pattern_that_never_matched_is_in_the_report() {
    let mut evaluation = two();
    let unmatched = |evaluation: &mut Evaluation, failure: Option<&str>| {
        let records = evaluation.runs.iter_mut().flat_map(|run| &mut run.records);
        records.for_each(|record| record.verdict.failure = failure.map(str::to_owned));
    };
    unmatched(&mut evaluation, Some(crate::tasks::UNMATCHED));
    let numbers = Numbers::of(&evaluation).unwrap();
    let told = "answer_regex of sums matches none of its 8 answers, which count as wrong: mend it in the task's file. One answer is \
                \"It is 2\"";
    assert_eq!(numbers.warnings(), [told]);
    assert!(markdown(&numbers, &[]).contains(&format!("\nWarning: {told}.\n")));
    assert!(page(&numbers).unwrap().contains("Warning: answer_regex of sums matches none of its 8 answers"));
    assert!(numbers.json().contains("\"unmatched\""));
    // One match is enough.
    evaluation.runs[1].records[3].verdict.failure = None;
    assert_eq!(Numbers::of(&evaluation).unwrap().unmatched, []);
}
