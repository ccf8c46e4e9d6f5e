//! The date and the time as `strftime` writes them, in UTC and in English.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment in the parts that a date is written with.
struct Moment {
    seconds: u64,
    micros: u32,
    year: u64,
    /// From 0 on, as all below.
    month: usize,
    day: u64,
    day_of_year: u64,
    weekday: u64,
}

impl Moment {
    fn of(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let days = since.as_secs() / 86_400;
        let (year, day_of_year) = year_of(days);
        let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let (mut month, mut day) = (0, day_of_year);
        while day >= lengths[month] {
            day -= lengths[month];
            month += 1;
        }
        // The first day of 1970 was a Thursday.
        let weekday = (days + 4) % 7;
        let (seconds, micros) = (since.as_secs(), since.subsec_micros());
        Self { seconds, micros, year, month, day, day_of_year, weekday }
    }

    /// ISO 8601's week and the year that it belongs to.
    fn iso_week(&self) -> (u64, u64) {
        let monday_first = (self.weekday + 6) % 7;
        let week = (self.day_of_year + 10 - monday_first) / 7;
        let weeks = |year: u64| {
            // A year has 53 weeks if it begins, or in a leap year ends, on a Thursday.
            let starts = |year: u64| (1 + 5 * ((year - 1) % 4) + 4 * ((year - 1) % 100) + 6 * ((year - 1) % 400)) % 7;
            52 + u64::from(starts(year) == 4 || (leap(year) && starts(year) == 3))
        };
        if week == 0 {
            (weeks(self.year - 1), self.year - 1)
        } else if week > weeks(self.year) {
            (1, self.year + 1)
        } else {
            (week, self.year)
        }
    }

    /// Meaning of a specifier, with its usual filling and width. `None` for those that `strftime` does not know.
    fn part(&self, specifier: char) -> Option<(String, char, usize)> {
        let (hour, minute, second) = (self.seconds / 3600 % 24, self.seconds / 60 % 60, self.seconds % 60);
        let noon = if hour < 12 { "AM" } else { "PM" };
        let twelve = (hour + 11) % 12 + 1;
        let (week, week_year) = self.iso_week();
        let number = |number: u64, width: usize| Some((number.to_string(), '0', width));
        let spaced = |number: u64| Some((number.to_string(), ' ', 2));
        let word = |word: &str| Some((word.to_owned(), ' ', 0));
        let whole = |format: &str| Some((self.write(format), ' ', 0));
        match specifier {
            'a' => word(&DAYS[self.weekday as usize][..3]),
            'A' => word(DAYS[self.weekday as usize]),
            'w' => number(self.weekday, 1),
            'u' => number((self.weekday + 6) % 7 + 1, 1),
            'd' => number(self.day + 1, 2),
            'e' => spaced(self.day + 1),
            'b' | 'h' => word(&MONTHS[self.month][..3]),
            'B' => word(MONTHS[self.month]),
            'm' => number(self.month as u64 + 1, 2),
            'y' => number(self.year % 100, 2),
            'Y' => number(self.year, 1),
            'C' => number(self.year / 100, 2),
            'G' => number(week_year, 1),
            'g' => number(week_year % 100, 2),
            'V' => number(week, 2),
            'U' => number((self.day_of_year + 7 - self.weekday) / 7, 2),
            'W' => number((self.day_of_year + 7 - (self.weekday + 6) % 7) / 7, 2),
            'j' => number(self.day_of_year + 1, 3),
            'H' => number(hour, 2),
            'k' => spaced(hour),
            'I' => number(twelve, 2),
            'l' => spaced(twelve),
            'p' => word(noon),
            'P' => word(&noon.to_lowercase()),
            'M' => number(minute, 2),
            'S' => number(second, 2),
            'f' => Some((format!("{:06}", self.micros), ' ', 0)),
            's' => number(self.seconds, 1),
            // A time without a zone has neither.
            'z' | 'Z' => word(""),
            'c' => whole("%a %b %e %H:%M:%S %Y"),
            'x' | 'D' => whole("%m/%d/%y"),
            'X' | 'T' => whole("%H:%M:%S"),
            'F' => whole("%Y-%m-%d"),
            'R' => whole("%H:%M"),
            'r' => whole("%I:%M:%S %p"),
            'n' => word("\n"),
            't' => word("\t"),
            '%' => word("%"),
            _ => None,
        }
    }

    fn write(&self, format: &str) -> String {
        let mut text = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            text.push_str(&rest[..at]);
            let inside = &rest[at + 1..];
            let flags = inside.find(|c| !"-_0^#".contains(c)).unwrap_or(inside.len());
            let digits = inside[flags..].find(|c: char| !c.is_ascii_digit()).unwrap_or(inside.len() - flags);
            let width: usize = inside[flags..flags + digits].parse().unwrap_or(0);
            let behind = &inside[flags + digits..];
            let behind = behind.strip_prefix(['E', 'O']).unwrap_or(behind);
            let specifier = behind.chars().next();
            if let Some((part, fill, usual)) = specifier.and_then(|specifier| self.part(specifier)) {
                text.push_str(&shaped(part, &inside[..flags], fill, width.min(256), usual));
                rest = &behind[specifier.map_or(0, char::len_utf8)..];
            } else {
                // As it is, like all that `strftime` does not know.
                text.push('%');
                rest = inside;
            }
        }
        text + rest
    }
}

/// A part with its flags: `-` without filling, `_` with spaces, `0` with zeros, `^` in large letters, `#` in the other case.
fn shaped(part: String, flags: &str, fill: char, width: usize, usual: usize) -> String {
    let mut part = match flags.chars().rfind(|flag| matches!(flag, '^' | '#')) {
        Some('^') => part.to_uppercase(),
        Some(_) if part == part.to_uppercase() => part.to_lowercase(),
        Some(_) => part.to_uppercase(),
        None => part,
    };
    let fill = match flags.chars().rfind(|flag| matches!(flag, '-' | '_' | '0')) {
        Some('-') => return part,
        Some('_') => ' ',
        Some(_) => '0',
        None => fill,
    };
    let missing = width.max(usual).saturating_sub(part.chars().count());
    part.insert_str(0, &fill.to_string().repeat(missing));
    part
}

/// The date in a format of `strftime`.
pub(super) fn date(format: &str, now: SystemTime) -> String {
    Moment::of(now).write(format)
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// The year, and the day in it, of a number of days since 1970.
fn year_of(mut days: u64) -> (u64, u64) {
    // A clock that is off by millennia must not cost time.
    days = days.min(4_000_000);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    (year, days)
}
