use super::*;

const PLAIN: RouterRule = RouterRule { score: Score::Softmax, groups: None, share: Share::Whole, scale: 1.0 };

fn choose(rule: RouterRule, bias: Option<&[f32]>, logits: &[f32], taken: usize) -> (Vec<u32>, Vec<f32>) {
    let (mut scores, mut ranked) = (logits.to_vec(), vec![0.0; logits.len()]);
    let (mut experts, mut weights) = (vec![0; taken], vec![0.0; taken]);
    Router { rule: &rule, bias }.choose(&mut scores, &mut ranked, &mut experts, &mut weights);
    (experts, weights)
}

#[test]
fn the_best_are_taken_in_ascending_order_and_ties_go_to_the_lower_one() {
    let (experts, weights) = choose(PLAIN, None, &[1.0, 3.0, 2.0, 3.0, 2.0], 3);
    assert_eq!(experts, [1, 2, 3]);
    let sum: f32 = [1.0f32, 3.0, 2.0, 3.0, 2.0].iter().map(|logit| logit.exp()).sum();
    for (weight, logit) in weights.iter().zip([3.0f32, 2.0, 3.0]) {
        assert!((weight - logit.exp() / sum).abs() < 1e-6);
    }
    assert_eq!(choose(PLAIN, None, &[0.5; 6], 2).0, [0, 1]);
}

#[test]
fn shares_are_of_the_chosen_and_one_alone_is_everything() {
    let shared = RouterRule { share: Share::OfChosen(0.0), ..PLAIN };
    let (_, weights) = choose(shared, None, &[0.1, -3.0, 2.0, 0.7], 2);
    assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    assert_eq!(choose(shared, None, &[0.1, -3.0, 2.0, 0.7], 1), (vec![2], vec![1.0]));
    let scaled = RouterRule { scale: 2.5, ..shared };
    let (_, scaled) = choose(scaled, None, &[0.1, -3.0, 2.0, 0.7], 2);
    assert!((scaled.iter().sum::<f32>() - 2.5).abs() < 1e-6);
}

/// A bias chooses and does not weigh; experts of groups that are not kept are out even where all others are below 0.
#[test]
fn groups_are_worth_their_two_best_and_a_bias_weighs_nothing() {
    let rule = RouterRule {
        score: Score::Sigmoid,
        groups: Some(ExpertGroups { count: 3, selected: 1 }),
        share: Share::Whole,
        scale: 1.0,
    };
    let bias = [-2.0; 9];
    // The best single expert is in group 0, the best pair in group 2.
    let logits = [4.0, -9.0, -9.0, 0.0, 0.0, 0.0, 2.0, 2.0, -9.0];
    let (experts, weights) = choose(rule, Some(&bias), &logits, 3);
    assert_eq!(experts, [6, 7, 8]);
    for (weight, logit) in weights.iter().zip([2.0f32, 2.0, -9.0]) {
        assert!((weight - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6);
    }
    // Equal groups: the lower one is kept.
    assert_eq!(choose(rule, None, &[0.0; 9], 2).0, [0, 1]);
    let mut moved = [0.0; 9];
    moved[5] = 3.0;
    assert_eq!(choose(rule, Some(&moved), &[0.0; 9], 1).0, [5]);
}

#[test]
fn what_is_no_number_chooses_nothing_and_spreads() {
    for bad in [f32::NAN, f32::INFINITY] {
        let (experts, weights) = choose(PLAIN, None, &[0.0, bad, 1.0], 2);
        assert_eq!(experts, [0, 1]);
        assert!(weights.iter().all(|weight| weight.is_nan()));
    }
    assert_eq!(choose(PLAIN, None, &[f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY], 2), (vec![0, 1], vec![0.0, 1.0]));
}

#[test]
fn pairs_stand_by_expert_and_row() {
    let mut order = Order::new(4, 6);
    order.sort(&[1, 3, 0, 3, 1, 3]);
    assert_eq!(order.pairs, [2, 0, 4, 1, 3, 5]);
    assert_eq!(order.used, [0, 1, 3]);
    let job = |weight, first_row, rows| Job { weight, first_row, rows };
    assert_eq!(order.jobs, [job(0, 0, 1), job(1, 1, 2), job(3, 3, 3)]);
    let mut order = Order::new(2, 600);
    order.sort(&vec![1; 600]);
    assert_eq!(order.jobs, [job(1, 0, 256), job(1, 256, 256), job(1, 512, 88)]);
    order.sort(&[]);
    assert!(order.jobs.is_empty() && order.pairs.is_empty());
}
