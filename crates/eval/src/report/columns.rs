//! Columns of the tables: what stands in them, what that means, and when they are shown.

use demask_figures::short;

use super::{Ends, Faster, Summary, compare::NORMAL_95, published::written};

/// A column of a table.
pub struct Column {
    pub name: &'static str,
    /// Description of its content, in words.
    pub about: &'static str,
    pub cell: fn(&Summary) -> String,
    /// Records whether it is shown: columns that say nothing are left out.
    pub visible: fn(&[&Summary]) -> bool,
}

const fn column(name: &'static str, about: &'static str, cell: fn(&Summary) -> String) -> Column {
    Column { name, about, cell, visible: |_| true }
}

/// Columns that hold words, and stand to the left.
pub const WORDS: [&str; 15] = [
    "setting",
    "value",
    "from",
    "task",
    "run",
    "against",
    "model",
    "device",
    "prompts",
    "prefixes",
    "baseline",
    "guide",
    "exactness",
    "most accurate run",
    "source",
];

/// The table of each task, after the run's number.
pub const MAIN: &[Column] = &[
    column("run", "its name, or decoder and cache and what else differs", |row| row.run.clone()),
    Column {
        visible: |rows| differ(rows, |row| row.model.as_str()),
        ..column("model", "what answered", |row| row.model.clone())
    },
    Column {
        visible: |rows| differ(rows, |row| row.device.as_str()),
        ..column("device", "where it ran, and in which numbers", |row| row.device.clone())
    },
    Column {
        visible: |rows| differ(rows, |row| row.prompts.as_str()),
        ..column("prompts", "their wording and the solved problems in them", |row| row.prompts.clone())
    },
    Column {
        visible: |rows| differ(rows, prefixes),
        ..column("prefixes", "whether items share what their prompts begin with; – where none can be kept", |row| {
            prefixes(row).to_owned()
        })
    },
    column("items", "judged items", |row| row.items.to_string()),
    column(
        "accuracy %",
        "mean worth of answers, 1 where right, ± its standard error, sqrt(p (1 - p) / n) where none is right in part; where all \
         or none is right, Wilson's 95 % interval",
        accuracy,
    ),
    Column {
        visible: |rows| rows.iter().any(|row| row.valid.is_some()),
        ..column("valid %", "answers that are JSON as the schema of their problem says", |row| percent(row.valid))
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.seeds > 1),
        ..column("seeds", "under how many each item was answered, ± the standard deviation between them", seeds)
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.difference.is_some()),
        ..column(
            "difference",
            "points of accuracy above the baseline's on the same items, with the 95 % interval of matched pairs (Agresti \
             and Min): an interval around 0 tells no difference",
            difference,
        )
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.cut > 0.0),
        ..column("cut %", "answers that filled their length without coming to an end", |row| percent(Some(row.cut)))
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.calibration.is_some()),
        ..column(
            "Brier",
            "mean squared error of the choices' probabilities, summed over the choices of an item: 0 is best, 2 worst",
            |row| optional(row.calibration.as_ref().map(|found| found.brier)),
        )
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.calibration.is_some()),
        ..column(
            "ECE %",
            "expected calibration error: points between the winners' probabilities and the share of right ones, over 10 bins",
            |row| percent(row.calibration.as_ref().map(|found| found.error)),
        )
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.calibration.is_some()),
        ..column("mass %", "mean probability that all choices of an item had together among all texts", |row| {
            percent(row.calibration.as_ref().map(|found| found.mass))
        })
    },
    column(
        "s/item",
        "mean seconds of an item, prompt included, with the 95 % interval over turns; of items that share forwards, their shares",
        |row| match row.seconds_within {
            Some(Ends { low, high }) => format!("{} ({} to {})", short(row.seconds_per_item), short(low), short(high)),
            None => short(row.seconds_per_item),
        },
    ),
    Column {
        visible: |rows| rows.iter().any(|row| row.processor_per_item.is_some()),
        ..column("CPU s/item", "mean seconds of the processor for an item, over all threads", |row| {
            optional(row.processor_per_item)
        })
    },
    column("tokens/s", "decoded tokens of all items by their seconds", |row| optional(row.tokens_per_second)),
    column("NFE", "mean forwards of an item, as the method's paper counts them", |row| short(row.nfe)),
    column("tokens/NFE", "decoded tokens of all items by their forwards", |row| optional(row.tokens_per_nfe)),
    column("GFLOP/token", "operations by formula, a guide's included, by decoded tokens", |row| {
        optional(row.gflop_per_token)
    }),
    Column {
        visible: |rows| rows.iter().any(|row| row.cached_tokens > 0.0),
        ..column("cached/item", "mean tokens of a prompt that an earlier item of the run had computed", |row| {
            short(row.cached_tokens)
        })
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.guide_nfe > 0.0),
        ..column("guide NFE", "mean forwards of the guide for an item", |row| short(row.guide_nfe))
    },
    column("memory", "weights, the guide's too, and K/V of the largest sequence, as counted", |row| {
        bytes(row.named_memory)
    }),
    Column {
        visible: |rows| rows.iter().any(|row| row.own_peak_memory.is_some()),
        ..column(
            "peak memory",
            "largest resident memory of a process that loads the model and answers the longest items of this run alone; – where it \
             was not measured",
            |row| row.own_peak_memory.map_or_else(|| "–".to_owned(), bytes),
        )
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.device_memory.is_some()),
        ..column(
            "device memory",
            "largest memory that the model and its guides had allocated on the GPU while the run went on",
            |row| row.device_memory.map(bytes).unwrap_or_default(),
        )
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.compared()),
        ..column(
            "speed-up",
            "seconds per item of the baseline by those of this run, with the 95 % interval over turns",
            speed_up,
        )
    },
    Column {
        visible: |rows| rows.iter().any(|row| !row.exactness.is_empty()),
        ..column("exactness", "what the answers may claim, and against which run", exactness)
    },
];

/// Ratios to the baseline.
pub const RATIOS: &[Column] = &[
    column("run", "", |row| row.run.clone()),
    column("baseline", "the run that it is compared with", |row| row.baseline.clone()),
    Column {
        visible: |rows| rows.iter().any(|row| row.difference.is_some_and(|difference| difference.p.is_some())),
        ..column("p", "how probable such different verdicts are between equals: McNemar's exact test", |row| {
            optional(row.difference.and_then(|difference| difference.p))
        })
    },
    column("tokens/s ratio", "tokens per second by the baseline's", |row| times(row.tokens_per_second_ratio)),
    column("tokens/NFE ratio", "tokens per forward by the baseline's", |row| times(row.tokens_per_nfe_ratio)),
    column("operations saved", "the baseline's operations per token by those of this run", |row| {
        times(row.operations_ratio)
    }),
];

/// Columns about drafts, guides and tokens.
pub const MORE: &[Column] = &[
    column("run", "", |row| row.run.clone()),
    column("tokens/item", "mean decoded tokens of an item, up to and with the end token", |row| short(row.tokens)),
    Column {
        visible: |rows| rows.iter().any(|row| row.plain_tokens.is_some()),
        ..column("text tokens/item", "the same without special tokens", |row| optional(row.plain_tokens))
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.plain_tokens.is_some()),
        ..column("text tokens/s", "tokens without special ones by the seconds of all items", |row| {
            optional(row.by_second(row.plain_tokens))
        })
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.plain_tokens.is_some()),
        ..column("text tokens/NFE", "tokens without special ones by the forwards of all items", |row| {
            optional(row.by_nfe(row.plain_tokens))
        })
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.valid_tokens.is_some()),
        ..column("valid tokens/NFE", "the same with the prompts' tokens", |row| optional(row.by_nfe(row.valid_tokens)))
    },
    Column {
        visible: |rows| rows.iter().any(|row| written(row).is_some()),
        ..column("positions/s", "all positions that were written, those after an end included, by the seconds", |row| {
            optional(row.by_second(written(row)))
        })
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.cache_memory > 0),
        ..column("K/V memory", "of the largest sequence", |row| bytes(row.cache_memory))
    },
    Column {
        visible: |rows| differ(rows, |row| row.guide.as_str()),
        ..column("guide", "the model that judged drafts", |row| dashed(&row.guide))
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.guide_memory > 0),
        ..column("guide's memory", "its weights", |row| bytes(row.guide_memory))
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.guide_share.is_some()),
        ..column("guide's time %", "its seconds by all seconds", |row| percent(row.guide_share))
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.acceptance.is_some()),
        ..column("acceptance %", "drafts that the guide agreed with by those that it judged", |row| {
            percent(row.acceptance)
        })
    },
    Column {
        visible: |rows| rows.iter().any(|row| row.accepted_drafts.is_some()),
        ..column("accepted drafts", "mean draft tokens that a forward with drafts accepted", |row| {
            optional(row.accepted_drafts)
        })
    },
];

/// Reports whether rows say different things.
pub fn differ<'a>(rows: &[&'a Summary], of: fn(&'a Summary) -> &'a str) -> bool {
    rows.iter().any(|row| of(row) != of(rows[0]))
}

pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), short)
}

/// A factor with two digits after the point, or, below 0.1, with two digits that count.
pub fn times(value: Option<f64>) -> String {
    let digits = |value: f64| if value.abs() < 0.0995 { short(value) } else { format!("{value:.2}") };
    value.map_or_else(|| "–".to_owned(), |value| format!("{}x", digits(value)))
}

/// A row's accuracy with its error. Where all answers are worth the same, that error is 0, and Wilson's interval is honest.
pub fn accuracy(row: &Summary) -> String {
    let (percent, items) = (100.0 * row.accuracy, row.items as f64);
    let reach = 100.0 * NORMAL_95.powi(2) / (items + NORMAL_95.powi(2));
    match row.accuracy {
        0.0 => format!("0.0 (0 to {reach:.1})"),
        1.0 => format!("100.0 ({:.1} to 100)", 100.0 - reach),
        _ => format!("{percent:.1} ± {:.1}", 100.0 * row.standard_error),
    }
}

/// A row's speed-up, with its interval where it has one.
pub fn speed_up(row: &Summary) -> String {
    match row.faster {
        Some(Faster { low, high, .. }) => {
            let [ratio, low, high] = [row.speed_up, low, high].map(|value| times(Some(value)));
            format!("{ratio} ({} to {})", low.trim_end_matches('x'), high.trim_end_matches('x'))
        }
        None => times(Some(row.speed_up)),
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{:.1}", 100.0 * value))
}

fn prefixes(row: &Summary) -> &'static str {
    match row.prefix_cache {
        None => "–",
        Some(true) => "shared",
        Some(false) => "not shared",
    }
}

fn dashed(text: &str) -> String {
    if text.is_empty() { "–".to_owned() } else { text.to_owned() }
}

fn seeds(row: &Summary) -> String {
    match row.seed_spread {
        Some(spread) => format!("{} ± {:.1}", row.seeds, 100.0 * spread),
        None => row.seeds.to_string(),
    }
}

fn difference(row: &Summary) -> String {
    row.difference.map_or_else(
        || "–".to_owned(),
        |found| {
            let [mean, low, high] = [found.mean, found.low, found.high].map(points);
            format!("{mean} ({low} to {high})")
        },
    )
}

/// Points of accuracy with their sign.
pub fn points(share: f64) -> String {
    let text = format!("{:+.1}", 100.0 * share);
    if text == "-0.0" { "+0.0".to_owned() } else { text }
}

fn exactness(row: &Summary) -> String {
    if row.against.is_empty() { row.exactness.clone() } else { format!("{} ({})", row.exactness, row.against) }
}

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    let mib = count as f64 / f64::from(1 << 20);
    match mib {
        0.0 => "–".to_owned(),
        1024.0.. => format!("{:.1} GiB", mib / 1024.0),
        10.0.. => format!("{mib:.0} MiB"),
        1.0.. => format!("{} MiB", (10.0 * mib).round() / 10.0),
        _ => format!("{:.0} KiB", 1024.0 * mib),
    }
}

#[cfg(test)]
mod tests {
    use super::{accuracy as accuracy_of, *};

    #[test]
    fn all_right_is_not_certain() {
        let of = |accuracy: f64, items| accuracy_of(&Summary { items, accuracy, ..Summary::default() });
        assert_eq!(of(1.0, 20), "100.0 (83.9 to 100)");
        assert_eq!(of(0.0, 8), "0.0 (0 to 32.4)");
        assert_eq!(of(0.5, 8), "50.0 ± 0.0");
    }

    #[test]
    fn a_small_factor_keeps_two_digits_that_count() {
        let all = [0.005, 0.0049, 0.04, 0.0994, 0.1, 0.5, 1.0, 12.138];
        let texts: Vec<String> = all.iter().map(|&value| times(Some(value))).collect();
        assert_eq!(texts, ["0.005x", "0.0049x", "0.04x", "0.0994x", "0.10x", "0.50x", "1.00x", "12.14x"]);
    }
}
